"""Records: what `dataclasses` offers, as far as sbx uses it, made without compiling any code.

`dataclasses` writes six functions as text for each class and compiles them, half a millisecond a class at every start
of the compile side, and it imports `inspect` for that. Here every class gets closures. To a type checker these *are*
the functions of `dataclasses`. A record's `__dataclass_fields__` are made when somebody asks for them, so that
`dataclasses.fields`, `asdict` and `replace` know records as well.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import asdict as asdict
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
else:
    _MISSING = object()

    class _Default:
        """What a class body says of a field beyond a plain default."""

        __slots__ = ("compare", "factory", "init", "plain", "repr")

        def __init__(self, plain, factory, init, repr, compare):
            self.plain, self.factory, self.init, self.repr, self.compare = plain, factory, init, repr, compare

    def field(*, default=_MISSING, default_factory=_MISSING, init=True, repr=True, compare=True):
        return _Default(default, default_factory, init, repr, compare)

    def dataclass(*, frozen=False, slots=False, eq=True):
        return lambda cls: _made(cls, frozen, slots, eq)

    def replace(record, /, **changes):
        """A copy with changes. Fields that `__init__` does not take are made anew."""
        cls = record.__class__
        for name in cls.__record__.taken:
            if name not in changes:
                changes[name] = getattr(record, name)
        return cls(**changes)

    def asdict(record):
        """As plain dicts, all the way down."""
        from dataclasses import asdict as in_full

        return in_full(record)

    class _Record:
        """What is known of a class of records."""

        __slots__ = ("defaults", "fields", "taken")

        def __init__(self, fields, defaults):
            self.fields = fields  # every name
            self.defaults = defaults  # name -> _Default
            self.taken = tuple(name for name in fields if name not in defaults or defaults[name].init)

        def those(self, what):
            return tuple(
                name for name in self.fields if name not in self.defaults or getattr(self.defaults[name], what)
            )

    class _FieldsInFull:
        """`__dataclass_fields__` of a record, for the functions of `dataclasses`."""

        def __get__(self, record, cls):
            import dataclasses

            known = cls.__record__
            values = {}
            for name, default in known.defaults.items():
                given = {"init": default.init, "repr": default.repr, "compare": default.compare}
                if default.plain is not _MISSING:
                    given["default"] = default.plain
                if default.factory is not _MISSING:
                    given["default_factory"] = default.factory
                values[name] = dataclasses.field(**given)
            annotations = {name: cls.__annotations__[name] for name in known.fields}
            twin = type(cls.__name__, (), {**values, "__annotations__": annotations, "__module__": cls.__module__})
            cls.__dataclass_fields__ = dataclasses.dataclass(twin).__dataclass_fields__
            return cls.__dataclass_fields__

    def _made(cls, frozen, slots, eq):
        body = dict(cls.__dict__)
        fields = tuple(body.get("__annotations__", ()))
        defaults = {}
        for name in fields:
            if name in body:
                value = body[name]
                defaults[name] = value if type(value) is _Default else _Default(value, _MISSING, True, True, True)
                if slots or (type(value) is _Default and value.plain is _MISSING):
                    del body[name]  # a slot of that name takes its place
                else:
                    body[name] = defaults[name].plain
        record = body["__record__"] = _Record(fields, defaults)
        body["__dataclass_fields__"] = _FieldsInFull()
        body["__match_args__"] = record.taken
        body.pop("__dict__", None)
        body.pop("__weakref__", None)
        if slots:
            body["__slots__"] = fields
        if "__repr__" not in body:
            body["__repr__"] = _repr(record.those("repr"))
        if eq:
            compared = record.those("compare")
            body["__eq__"] = _eq(compared)
            body["__hash__"] = _hash(compared) if frozen else None
        if frozen:
            body["__setattr__"] = _refuse_to_set
            body["__delattr__"] = _refuse_to_delete
            if slots:
                body["__getstate__"] = _getstate
                body["__setstate__"] = _setstate
        made = type(cls)(cls.__name__, cls.__bases__, body)
        made.__init__ = _init(made, record, slots)
        return made

    def _init(cls, record, slots):
        names = record.taken
        count = len(names)
        required = tuple(name for name in names if name not in record.defaults)
        place = {name: number for number, name in enumerate(names)}
        plain = [record.defaults[name].plain if name in record.defaults else _MISSING for name in names]
        factories = tuple(
            (place[name], record.defaults[name].factory)
            for name in names
            if name in record.defaults and record.defaults[name].factory is not _MISSING
        )
        after = cls.__dict__.get("__post_init__")
        if slots:
            setters = tuple(cls.__dict__[name].__set__ for name in names)
        else:
            put = object.__setattr__
            setters = tuple(lambda self, value, name=name: put(self, name, value) for name in names)

        def complete(given, named):
            size = len(given)
            if size > count:
                raise TypeError(f"{cls.__name__} takes {count} values, and got {size}")
            values = [*given, *plain[size:]]
            for name, value in named.items():
                number = place.get(name, -1)
                if number < size:
                    raise TypeError(f"{cls.__name__} got an unexpected value for '{name}'")
                values[number] = value
            for number, factory in factories:
                if values[number] is _MISSING:
                    values[number] = factory()
            for name in required:
                if values[place[name]] is _MISSING:
                    missing = [name for name in required if values[place[name]] is _MISSING]
                    raise TypeError(f"{cls.__name__} lacks {', '.join(missing)}")
            return values

        def __init__(self, *given, **named):
            if named or len(given) != count:
                given = complete(given, named)
            for setter, value in zip(setters, given):  # noqa: B905  # of one length, and the keyword costs a start
                setter(self, value)
            if after is not None:
                after(self)

        # The most frequent records are small, and made by the thousand: without a loop they cost half.
        if slots and after is None and count in (2, 3, 4, 5, 6):
            return (_init_2, _init_3, _init_4, _init_5, _init_6)[count - 2](complete, *setters)
        return __init__

    def _init_2(complete, set_a, set_b):
        def __init__(self, a=_MISSING, b=_MISSING, /, *more, **named):
            if named or more or b is _MISSING:
                a, b = complete(_given(a, b, *more), named)
            set_a(self, a)
            set_b(self, b)

        return __init__

    def _init_3(complete, set_a, set_b, set_c):
        def __init__(self, a=_MISSING, b=_MISSING, c=_MISSING, /, *more, **named):
            if named or more or c is _MISSING:
                a, b, c = complete(_given(a, b, c, *more), named)
            set_a(self, a)
            set_b(self, b)
            set_c(self, c)

        return __init__

    def _init_4(complete, set_a, set_b, set_c, set_d):
        def __init__(self, a=_MISSING, b=_MISSING, c=_MISSING, d=_MISSING, /, *more, **named):
            if named or more or d is _MISSING:
                a, b, c, d = complete(_given(a, b, c, d, *more), named)
            set_a(self, a)
            set_b(self, b)
            set_c(self, c)
            set_d(self, d)

        return __init__

    def _init_5(complete, set_a, set_b, set_c, set_d, set_e):
        def __init__(self, a=_MISSING, b=_MISSING, c=_MISSING, d=_MISSING, e=_MISSING, /, *more, **named):
            if named or more or e is _MISSING:
                a, b, c, d, e = complete(_given(a, b, c, d, e, *more), named)
            set_a(self, a)
            set_b(self, b)
            set_c(self, c)
            set_d(self, d)
            set_e(self, e)

        return __init__

    def _init_6(complete, set_a, set_b, set_c, set_d, set_e, set_f):
        def __init__(self, a=_MISSING, b=_MISSING, c=_MISSING, d=_MISSING, e=_MISSING, f=_MISSING, /, *more, **named):
            if named or more or f is _MISSING:
                a, b, c, d, e, f = complete(_given(a, b, c, d, e, f, *more), named)
            set_a(self, a)
            set_b(self, b)
            set_c(self, c)
            set_d(self, d)
            set_e(self, e)
            set_f(self, f)

        return __init__

    def _given(*values):
        return tuple([value for value in values if value is not _MISSING])

    def _repr(names):
        def __repr__(self):
            shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
            return f"{self.__class__.__qualname__}({shown})"

        return __repr__

    def _eq(names):
        def __eq__(self, other):
            if other.__class__ is not self.__class__:
                return NotImplemented
            for name in names:
                mine, others = getattr(self, name), getattr(other, name)
                if mine is not others and mine != others:
                    return False
            return True

        return __eq__

    def _hash(names):
        def __hash__(self):
            return hash(tuple([getattr(self, name) for name in names]))

        return __hash__

    def _refuse_to_set(self, name, value):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_to_delete(self, name):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def _getstate(self):
        return [getattr(self, name) for name in self.__record__.fields]

    def _setstate(self, state):
        for name, value in zip(self.__record__.fields, state, strict=True):
            object.__setattr__(self, name, value)
