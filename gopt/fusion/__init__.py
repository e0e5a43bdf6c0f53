"""Which ops run as one kernel: problems, rules, configurations, programs."""

from gopt.fusion.problem import FusionProblem, fusion_bucket, prepare_fusion
from gopt.fusion.rules import ROLES, RULES, Rules

__all__ = ("ROLES", "RULES", "FusionProblem", "Rules", "fusion_bucket", "prepare_fusion")
