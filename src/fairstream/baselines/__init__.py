"""The systems fairstream is compared with, each as a scikit-learn transformer with the same contract."""

from fairstream.baselines.inlp import INLP
from fairstream.baselines.kleindessner import KleindessnerFairPCA
from fairstream.baselines.kleindessner_kernel import KleindessnerKernelFairPCA
from fairstream.baselines.leace import LeacePCA
from fairstream.baselines.mbf import MbFPCA
from fairstream.baselines.olfat import OlfatAswaniFairPCA
from fairstream.baselines.rlace import RLACE
from fairstream.baselines.samadi import SamadiFairPCA
from fairstream.baselines.together import fit_all

__all__ = [
    "INLP",
    "RLACE",
    "KleindessnerFairPCA",
    "KleindessnerKernelFairPCA",
    "LeacePCA",
    "MbFPCA",
    "OlfatAswaniFairPCA",
    "SamadiFairPCA",
    "fit_all",
]
