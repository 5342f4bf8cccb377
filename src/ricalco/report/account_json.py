"""An account as plain values: dictionaries, lists, strings and numbers."""
from __future__ import annotations

from ricalco.avals import ShapedArray
from ricalco.jit.causes import Cause
from ricalco.jit.records import StaleCapture
from ricalco.report.account_text import value_text
from ricalco.tracing import Place
from ricalco.tracing.observation.facts import Decision, Effect, Listing, Read

FORMAT = 1


def account_dict(account) -> dict:
    """See `Account.to_dict`. A field is never left out: what is not known is null or empty."""
    observation = account.observation
    return {
        "ricalco_account": FORMAT,
        "function": account.function,
        "place": account.place,
        "arguments": [{"name": name, **type_dict(aval), "used": name not in account.unused}
                      for name, aval in account.arguments],
        "statics": [{"name": name, "value": value_text(value)} for name, value in account.statics],
        "options": dict(account.options),
        "captures": [read_dict(read) for read in account.captures],
        "totals": {"captures": len(account.captures), "arrays": len(account.arrays), "bytes": account.nbytes,
                   "large": [read.path for read in account.large], "warn_bytes": account.warn_bytes,
                   "effects": len(account.effects), "decisions": len(account.decisions),
                   "equations": len(account.equations)},
        "effects": [effect_dict(effect) for effect in account.effects],
        "decisions": [decision_dict(decision) for decision in account.decisions],
        "never_reached": [{"file": u.file, "function": u.function, "lines": [line.number for line in u.lines]}
                          for u in account.never_reached],
        "shape_reads": [{"what": what, "place": place_dict(place)} for what, place in account.shape_reads],
        "callbacks": [{**c._asdict(), "inside": list(c.inside), "place": place_dict(c.place)}
                      for c in account.callbacks],
        "settled": [{**s._asdict(), "place": place_dict(s.place)} for s in account.settled],
        "selected": [{"primitive": s.primitive, "branches": s.branches, "predicates": s.size,
                      "place": place_dict(s.place)} for s in account.selected],
        "rerolled": [{**r._asdict(), "first": place_dict(r.first), "last": place_dict(r.last), "lines": r.lines}
                     for r in account.rerolled.rerolled],
        "near_misses": [{**n._asdict(), "first": place_dict(n.first), "last": place_dict(n.last), "lines": n.lines}
                        for n in account.rerolled.near],
        "unused": list(account.unused),
        "equations": [{"primitive": primitive, "place": place_dict(place)} for primitive, place in account.equations],
        "jaxpr": str(account.jaxpr),
        "sources": [listing_dict(listing) for listing in account.listings],
        "observed_with": observation.how if observation is not None else None,
        "unseen": list(observation.unseen) if observation is not None else [],
        "retraces": [cause_dict(cause) for cause in account.retraces],
        "stale": [stale_dict(stale) for stale in account.stale],
        "seconds": account.seconds,
        "calls": account.calls,
        "error": error_dict(account.error),
    }


def type_dict(aval: ShapedArray) -> dict:
    return {"dtype": aval.dtype.name, "shape": list(aval.shape), "weak_type": aval.weak_type}


def place_dict(place: Place | None) -> dict | None:
    if place is None:
        return None
    return {**place._asdict(), "text": place.text}


def read_dict(read: Read) -> dict:
    return {**read._asdict(), "place": place_dict(read.place), "roles": list(read.roles),
            "shape": list(read.shape) if read.shape is not None else None, "equations": list(read.equations)}


def effect_dict(effect: Effect) -> dict:
    return {**effect._asdict(), "place": place_dict(effect.place)}


def decision_dict(decision: Decision) -> dict:
    return {**decision._asdict(), "place": place_dict(decision.place)}


def cause_dict(cause: Cause) -> dict:
    return {**cause._asdict(), "text": str(cause)}


def stale_dict(stale: StaleCapture) -> dict:
    return {**stale._asdict(), "place": place_dict(stale.place)}


def listing_dict(listing: Listing) -> dict:
    return {"file": listing.file, "function": listing.function, "never_reached": list(listing.never_reached),
            "lines": [{"number": line.number, "text": line.text, "runs": line.runs, "equations": list(line.equations)}
                      for line in listing.lines]}


def error_dict(error) -> dict | None:
    if error is None:
        return None
    return {"type": error.type, "message": error.message, "place": place_dict(error.place)}
