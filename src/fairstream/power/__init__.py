"""The fair noisy power method: the second road to a FairSubspace, exactly as the paper prints it."""

from fairstream.power.method import FairPowerMethod

__all__ = ["FairPowerMethod"]
