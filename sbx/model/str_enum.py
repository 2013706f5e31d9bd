"""Sets of words: what `enum.StrEnum` offers, as far as sbx uses it, without importing enum.

With functools and collections behind it that module costs every start of the compile side more than reading a policy
does, and each of its classes as much as ten plain ones. To a type checker this *is* `enum.StrEnum`; at run time a
member is a `str` of its class, one object for each word, that compares, hashes and prints as its text.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enum import StrEnum as StrEnum
else:

    class _Words(type):
        """The class of such a set: iterable, and called with a text it gives the member."""

        def __new__(meta, name, bases, body):
            words = {key: text for key, text in body.items() if type(text) is str and not key.startswith("_")}
            cls = super().__new__(meta, name, bases, {key: body[key] for key in body if key not in words})
            cls.__members__ = members = {}
            cls._by_text_ = by_text = {}
            for key, text in words.items():
                if text in by_text:
                    raise ValueError(f"{name}.{key} says {text!r} a second time")
                member = str.__new__(cls, text)
                member.__dict__.update(name=key, value=text)
                members[key] = by_text[text] = member
                type.__setattr__(cls, key, member)
            return cls

        def __call__(cls, text):
            try:
                return cls._by_text_[text]
            except (KeyError, TypeError):
                raise ValueError(f"{text!r} is not a valid {cls.__qualname__}") from None

        def __iter__(cls):
            return iter(cls.__members__.values())

        def __reversed__(cls):
            return reversed(cls.__members__.values())

        def __len__(cls):
            return len(cls.__members__)

        def __bool__(cls):
            return True

        def __contains__(cls, text):
            return isinstance(text, str) and text in cls._by_text_

        def __getitem__(cls, key):
            return cls.__members__[key]

        def __setattr__(cls, key, value):
            if key in cls.__dict__.get("__members__", ()):
                raise AttributeError(f"cannot reassign member {key!r}")
            type.__setattr__(cls, key, value)

        def __delattr__(cls, key):
            if key in cls.__members__:
                raise AttributeError(f"cannot delete member {key!r}")
            type.__delattr__(cls, key)

        def __repr__(cls):
            return f"<enum {cls.__name__!r}>"

    class StrEnum(str, metaclass=_Words):
        def __repr__(self):
            return f"<{self.__class__.__name__}.{self.name}: {self.value!r}>"

        __str__ = str.__str__
        __format__ = str.__format__

        def __setattr__(self, key, value):
            raise AttributeError(f"cannot set {key!r} of {self!r}")

        def __reduce_ex__(self, protocol):
            return (self.__class__, (self.value,))

        def __copy__(self):
            return self

        def __deepcopy__(self, memory):
            return self
