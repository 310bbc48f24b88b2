"""Models in ONNX's text format, for features that the rest of the corpus lacks."""

from __future__ import annotations

HEAD = '<ir_version: 10, opset_import: ["": 21, "my": 1]>'

X = "(float[2,3] x) => (float[a,b] y)"

TEXTS = {
    "branch": f"""{HEAD} g {X} {{
        s = ReduceSum<keepdims=0>(x) zero = Constant<value_float=0.0>() c = Greater(s, zero)
        y = If(c) <then_branch = p () => (float[2,3] t) {{ t = Tanh(x) }},
                   else_branch = q () => (float[2,3] e) {{ e = Neg(x) }}>
    }}""",
    "loop": f"""{HEAD} g {X} {{
        n = Constant<value_int=3>() go = Constant<value = bool {{1}}>()
        y, rows = Loop(n, go, x) <body = b (int64 i, bool c, float[2,3] s)
            => (bool d, float[2,3] r, float[2,3] o) {{
            d = Identity(c) r = Sin(s) o = Mul(r, x) }}>
    }}""",
    "while": f"""{HEAD} g {X} {{
        go = Constant<value = bool {{1}}>() top = Constant<value_float=9.0>()
        y = Loop("", go, x) <body = b (int64 i, bool c, float[2,3] s)
            => (bool d, float[2,3] r) {{
            two = Constant<value_float=2.0>() one = Constant<value_float=1.0>()
            t = Abs(s) u = Mul(t, two) r = Add(u, one)
            m = ReduceMax<keepdims=0>(r) d = Less(m, top) }}>
    }}""",
    "scan": f"""{HEAD} g {X} {{
        zero = Constant<value = float[3] {{0, 0, 0}}>()
        last, y = Scan(zero, x) <num_scan_inputs = 1, body = b (float[3] s, float[3] v)
            => (float[3] r, float[3] o) {{ r = Add(s, v) o = Exp(r) }}>
    }}""",
    "nest": f"""{HEAD} g {X} {{
        n = Constant<value_int=2>() go = Constant<value = bool {{1}}>()
        y = Loop(n, go, x) <body = b (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] r) {{
            d = Identity(c)
            r = If(c) <then_branch = p () => (float[2,3] t) {{
                    t = Loop(n, c, s) <body = bb (int64 j, bool cc, float[2,3] z)
                        => (bool dd, float[2,3] w) {{ dd = Identity(cc) w = Sigmoid(z) }}> }},
                else_branch = q () => (float[2,3] e) {{ e = Identity(s) }}>
        }}>
    }}""",
    "sequence": f"""{HEAD} g {X} {{
        n = Constant<value_int=3>() go = Constant<value = bool {{1}}>() none = SequenceEmpty()
        q = Loop(n, go, none) <body = b (int64 i, bool c, seq(float[2,3]) s)
            => (bool d, seq(float[2,3]) r) {{
            d = Identity(c) h = Tanh(x) r = SequenceInsert(s, h) }}>
        y = ConcatFromSequence<axis=0>(q)
    }}""",
    "functions": f"""{HEAD} g {X} {{ a = my.outer<alpha=0.5>(x) y = my.inner(a) }}
        <opset_import: ["": 21, "my": 1], domain: "my"> outer <alpha> (x) => (y) {{
            h = my.inner(x) y = LeakyRelu<alpha: float = @alpha>(h) }}
        <opset_import: ["": 21], domain: "my"> inner (x) => (y) {{ t = Tanh(x) y = Add(t, x) }}""",
    "growth": f"""{HEAD} g {X} {{
        shape = Shape(x) two = Constant<value_ints=[2,1]>() big = Mul(shape, two)
        z = ConstantOfShape(big) t = Tile(x, two) w = Add(t, z)
        axes = Constant<value_ints=[1,1,1,1]>() p = Pad(w, axes)
        e = Constant<value_ints=[6,5]>() y = Expand(p, e)
    }}""",
    "range": f"""{HEAD} g {X} {{
        zero = Constant<value_float=0.0>() three = Constant<value_float=3.0>()
        one = Constant<value_float=1.0>() r = Range(zero, three, one)
        k = Cast<to=7>(r) three_ = Constant<value_ints=[3]>()
        values = Constant<value_floats=[0.0, 1.0]>()
                h = OneHot(k, three_, values) a = MatMul(x, h) y = Einsum<equation="ij,j->ij">(a, r)
    }}""",
    "old": """<ir_version: 4, opset_import: ["": 9]> g
        (float[1,1,4,4] x, float[1,1,2,2] w) => (float[a,b,c,d] y)
        <float[1,1,2,2] w = {1, 2, 3, 4}> {
        c = Conv<kernel_shape=[2,2], strides=[1,1]>(x, w) r = Relu(c)
        p = MaxPool<kernel_shape=[2,2]>(r) s = Constant<value = float[4] {1, 1, 2, 2}>()
        y = Upsample<mode="nearest">(p, s)
    }""",
    "resize": """<ir_version: 10, opset_import: ["": 21]> g
        (float[1,2,3,3] x, float[2,1,2,2] w) => (float[a,b,c,d] y)
        <float[2,1,2,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
        t = ConvTranspose<strides=[2,2], group=2>(x, w)
        s = Constant<value_floats=[1.0, 1.0, 2.0, 1.5]>() y = Resize<mode="linear">(t, "", s)
    }""",
    "quotients": f"""{HEAD} g {X} {{
        a = Constant<value_ints=[-9223372036854775808, 7, -8]>()
        b = Constant<value_ints=[2, 3, 4]>()
        q = Div(a, b) m = Mod(a, b) s = Add(q, m) f = Cast<to=1>(s)
        y = Add(x, f)
    }}""",
    "draws": f"""{HEAD} g {X} {{
        u = RandomUniformLike<low=-1.0, high=1.0>(x) n = RandomNormalLike<mean=0.0, scale=2.0>(x)
        s = Add(u, n) y = Mul(s, x)
    }}""",
}
