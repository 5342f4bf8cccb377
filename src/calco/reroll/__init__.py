"""Repeated code: found in a program, and compiled once."""
from calco.reroll.facts import NearMiss, Outcome, Rerolled
from calco.reroll.policy import MODES
from calco.reroll.rerolling import reroll
from calco.reroll.tokens import Tokens

__all__ = ["MODES", "NearMiss", "Outcome", "Rerolled", "Tokens", "reroll"]
