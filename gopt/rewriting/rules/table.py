"""The table of handwritten rewrite rules.

Letters of shapes:

- matrices: `m`, `n`, `k`, `p`;
- images: `b` images of `h` by `w` pixels, with `c` input channels;
- kernels: `r` by `s` pixels, `i` channels read, `o` and `q` output channels.

Both sides of a rule have the same finite values, up to rounding. Infinite values become NaN where a
rule pads a kernel with zeros.
"""

import itertools

from gopt.rewriting.rules.families import (
    enlarged,
    halves,
    named,
    neighbours,
    of_parts,
    transposed,
    with_itself,
)
from gopt.rewriting.rules.patterns import (
    add,
    apply,
    concat,
    conv,
    given,
    matmul,
    mul,
    relu,
    reshape,
    size,
    sub,
    transpose,
)
from gopt.rewriting.rules.rule import Rule, both

_SIDES = {"x": "... m k", "y": "... m k", "a": "... k n", "b": "... k n"}

RULES: tuple[Rule, ...] = (
    # Matrix products.
    *both(
        "(xa)b = x(ab)",
        matmul(matmul("x", "a"), "b"),
        matmul("x", matmul("a", "b")),
        {"x": "... m k", "a": "... k n", "b": "... n p"},
    ),
    *both(
        "xa + xb = x(a + b)",
        add(matmul("x", "a"), matmul("x", "b")),
        matmul("x", add("a", "b")),
        _SIDES,
    ),
    *both(
        "xa + ya = (x + y)a",
        add(matmul("x", "a"), matmul("y", "a")),
        matmul(add("x", "y"), "a"),
        _SIDES,
        alone=True,
    ),
    Rule(
        "xa, xb are parts of x[a|b]",
        (matmul("x", "a"), matmul("x", "b")),
        halves(matmul("x", concat("a", "b", axis=-1)), -1, "n", "p"),
        {"x": "... m k", "a": "... k n", "b": "... k p"},
    ),
    Rule(
        "xa, ya are parts of [x|y]a",
        (matmul("x", "a"), matmul("y", "a")),
        halves(matmul(concat("x", "y", axis=-2), "a"), -2, "m", "p"),
        {"x": "... m k", "y": "... p k", "a": "... k n"},
    ),
    Rule(
        "xa + yb = [x|y][a|b]",
        (add(matmul("x", "a"), matmul("y", "b")),),
        (matmul(concat("x", "y", axis=-1), concat("a", "b", axis=-2)),),
        {"x": "... m k", "y": "... m p", "a": "... k n", "b": "... p n"},
    ),
    # Convolutions.
    *both(
        "conv(x, a) + conv(x, b) = conv(x, a + b)",
        add(conv("x", "a"), conv("x", "b")),
        conv("x", add("a", "b")),
        {"x": "b h w c", "a": "r s i o", "b": "r s i o"},
    ),
    *both(
        "conv(x, a) + conv(y, a) = conv(x + y, a)",
        add(conv("x", "a"), conv("y", "a")),
        conv(add("x", "y"), "a"),
        {"x": "b h w c", "y": "b h w c", "a": "r s i o"},
        alone=True,
    ),
    Rule(
        "conv(x, a), conv(x, b) are parts of conv(x, [a|b])",
        (conv("x", "a", groups=1), conv("x", "b", groups=1)),
        halves(conv("x", concat("a", "b", axis=-1), groups=1), -1, "o", "q"),
        {"x": "b h w c", "a": "r s c o", "b": "r s c q"},
    ),
    Rule(
        "conv(x, a), conv(y, a) are parts of conv([x|y], a)",
        (conv("x", "a"), conv("y", "a")),
        halves(conv(concat("x", "y", axis=0), "a"), 0, "b", "q"),
        {"x": "b h w c", "y": "q h w c", "a": "r s i o"},
    ),
    Rule(
        "conv(x, a) + conv(y, b) = conv([x|y], [a|b])",
        (add(conv("x", "a", groups=1), conv("y", "b", groups=1)),),
        (conv(concat("x", "y", axis=-1), concat("a", "b", axis=-2), groups=1),),
        {"x": "b h w c", "y": "b h w q", "a": "r s c o", "b": "r s q o"},
    ),
    *both(
        "[conv(x, a)|conv(y, b)] = conv([x|y], [a|b]), in two groups",
        concat(conv("x", "a", groups=1), conv("y", "b", groups=1), axis=-1),
        conv(concat("x", "y", axis=-1), concat("a", "b", axis=-1), groups=2),
        {"x": "b h w c", "y": "b h w c", "a": "r s c o", "b": "r s c o"},
    ),
    Rule(
        "two groups of a convolution are one",
        (conv("x", "a", groups=given("groups", where=lambda groups: groups % 2 == 0)),),
        (
            conv(
                "x",
                apply("pair_groups", "a", groups=given("groups")),
                groups=given("groups", by=lambda groups: groups // 2),
            ),
        ),
        {"x": "b h w c", "a": "r s i o"},
        constant=("a",),
    ),
    *(enlarged(*sizes) for sizes in itertools.permutations((1, 3, 5), 2)),
    *map(with_itself, (1, 3, 5)),
    Rule(
        "sums of windows, and a convolution of pixels, are a convolution",
        (
            conv(
                apply("sum_pool", "x", **named("window", "strides", "padding")),
                "a",
                strides=(1, 1),
                padding=((0, 0), (0, 0)),
                groups=1,
                **named("dilation", "precision", "dtype"),
            ),
        ),
        (
            conv(
                "x",
                apply("spread", "a", window=given("window")),
                dilation=(1, 1),
                groups=1,
                **named("strides", "padding", "precision", "dtype"),
            ),
        ),
        {"x": "b h w c", "a": "1 1 c o"},
        constant=("a",),
    ),
    Rule(
        "a convolution of pixels is a product",
        (
            conv(
                "x",
                "a",
                strides=(1, 1),
                padding=((0, 0), (0, 0)),
                groups=1,
                **named("dilation", "precision", "dtype"),
            ),
        ),
        (
            reshape(
                apply(
                    "matmul",
                    reshape("x", shape=(size("b") * size("h") * size("w"), size("c"))),
                    reshape("a", shape=(size("c"), size("o"))),
                    **named("precision", "dtype"),
                ),
                shape=tuple(map(size, "bhwo")),
            ),
        ),
        {"x": "b h w c", "a": "1 1 c o"},
    ),
    Rule(
        "a convolution of each channel is a sum of shifted images",
        (conv("x", "a", **named("strides", "padding", "dilation"), dtype=None),),
        (apply("depthwise", "x", "a", **named("strides", "padding", "dilation")),),
        {"x": "b h w c", "a": "r s 1 c"},
    ),
    # Element-wise ops.
    Rule(
        "xa + xb = x(a + b), of elements",
        (add(mul("x", "a"), mul("x", "b")),),
        (mul("x", add("a", "b")),),
    ),
    Rule(
        "c(a + b) = ca + cb, of elements",
        (mul("c", add("a", "b")),),
        (add(mul("c", "a"), mul("c", "b")),),
        constant=("b", "c"),
        alone=True,
    ),
    *(
        rule
        for name, of in (("(x + y) + z = x + (y + z)", add), ("(xy)z = x(yz), of elements", mul))
        for rule in both(name, of(of("x", "y"), "z"), of("x", of("y", "z")), alone=True)
    ),
    # Parts.
    *(rule for count in (2, 3, 4) for rule in of_parts(count)),
    *(rule for count in (2, 3, 4) for rule in neighbours(count)),
    # Views.
    *transposed("(xy)' = y'x'", (1, 0), {"x": "m k", "y": "k n"}),
    *transposed("(xy)' = y'x', of each matrix", (0, 2, 1), {"x": "b m k", "y": "b k n"}),
    *(
        rule
        for view, name in ((transpose, "transpose"), (reshape, "reshape"))
        for rule in (
            *both(f"relu of a {name}", relu(view("x", like="view")), view(relu("x"), like="view")),
            *both(
                f"sum of {name}s",
                add(view("x", like="view"), view("y", like="view")),
                view(add("x", "y"), like="view"),
                {"x": "...", "y": "..."},
            ),
            *both(
                f"product of {name}s",
                mul(view("x", like="view"), view("y", like="view")),
                view(mul("x", "y"), like="view"),
                {"x": "...", "y": "..."},
            ),
        )
    ),
    # Constants move to where they are folded.
    Rule(
        "a norm of a convolution is in its kernel",
        (add(mul(sub(conv("x", "a"), "mean"), "scale"), "bias"),),
        (add(conv("x", mul("a", "scale")), sub("bias", mul("mean", "scale"))),),
        {"x": "b h w c", "a": "r s i o", **dict.fromkeys(("mean", "scale", "bias"), "1 1 1 o")},
        constant=("a", "mean", "scale", "bias"),
    ),
    Rule(
        "scales of a convolution are in its kernel",
        (mul(conv("x", "a"), "scale"),),
        (conv("x", mul("a", "scale")),),
        {"x": "b h w c", "a": "r s i o", "scale": "1 1 1 o"},
        constant=("a", "scale"),
    ),
    Rule(
        "a scale of images is in the kernel",
        (conv(mul("x", "scale"), "a"),),
        (conv("x", mul("a", "scale")),),
        {"x": "b h w c", "a": "r s i o", "scale": ""},
        constant=("a", "scale"),
    ),
    Rule(
        "a scale of a product is in its matrix",
        (mul(matmul("x", "a"), "scale"),),
        (matmul("x", mul("a", "scale")),),
        {"x": "... m k", "a": "... k n", "scale": ""},
        constant=("a", "scale"),
    ),
)
