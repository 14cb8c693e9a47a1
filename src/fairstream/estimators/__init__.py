"""scikit-learn faces of the learners. No mathematics."""
