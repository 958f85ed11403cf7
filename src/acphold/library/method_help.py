"""The help on methods of `acphold.Agent` that take the fields of a Struct as arguments."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, getdoc, signature
from textwrap import fill
from typing import Annotated, get_args, get_origin, get_type_hints


def help_on(method: Callable[..., object], options: Callable[..., object]) -> str:
    """Return the docstring of `method`, with the meaning of each of its options."""
    told = [f"{getdoc(method)}\n"]
    for each in signature(options).parameters.values():
        if get_origin(each.annotation) is Annotated:
            option = get_args(each.annotation)[1]
            of_it = f"{each.name}: {option.meaning}"
            told.append(fill(of_it, width=88, subsequent_indent="    "))
    return "\n".join(told)


def signature_with(options: Callable[..., object]) -> Signature:
    """Return the signature of a method that takes these options."""
    own, kinds = signature(options).parameters.values(), get_type_hints(options)
    parameters = [each.replace(annotation=kinds[each.name]) for each in own]
    return _InLines([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *parameters])


class _InLines(Signature):
    """A signature that `help` shows with one parameter per line, as Python 3.13 and later do."""

    def __str__(self) -> str:
        shown = [str(each) for each in self.parameters.values()]
        kinds = [each.kind for each in self.parameters.values()]
        shown.insert(kinds.index(Parameter.KEYWORD_ONLY), "*")
        return "(\n    " + ",\n    ".join(shown) + ",\n)"
