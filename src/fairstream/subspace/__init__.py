"""From moments to a fair subspace: what is nulled, what is kept, the frozen result."""
