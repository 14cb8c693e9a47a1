"""Fair streaming PCA."""

from fairstream._version import __version__
from fairstream.errors import FairstreamFileError, FairstreamWarning

__all__ = ["FairstreamFileError", "FairstreamWarning", "__version__"]
