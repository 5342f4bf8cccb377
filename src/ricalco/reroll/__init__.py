"""Repeated code: found in a program, and compiled once."""
from ricalco.reroll.facts import NearMiss, Outcome, Rerolled
from ricalco.reroll.policy import MODES
from ricalco.reroll.rerolling import reroll
from ricalco.reroll.tokens import Tokens

__all__ = ["MODES", "NearMiss", "Outcome", "Rerolled", "Tokens", "reroll"]
