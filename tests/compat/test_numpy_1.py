"""`ricalco.numpy` against `jax.numpy`: values, dtypes, weak types, shapes, error classes.

Each row is an expression in `jnp` and the inputs below, evaluated with both libraries.
"""
from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

import ricalco.numpy as jnp
from ricalco.core import Array
from tests.oracle import Given, jax

_random = np.random.RandomState(0)
INPUTS = {
    "f": np.float32([[0.5, -1.5, 2.25], [3.0, -0.25, 1.0]]),
    "g": np.float32([[1.5, 2.0, -0.5], [0.75, -2.0, 4.0]]),
    "u": np.float32([0.1, 0.4, 0.9]),
    "n": np.float32([[np.nan, 1.0, -2.0], [np.nan, np.inf, 3.0]]),
    "i": np.int32([[3, -4, 5], [0, 7, -2]]),
    "j": np.int32([[2, 3, -2], [5, 4, 6]]),
    "s": np.int8([100, 100, -7]),
    "k": np.uint8([1, 200, 7]),
    "b": np.array([[True, False, True], [False, False, True]]),
    "m": np.array([True, False, True]),
    "h": np.float16([1.5, 2.25, -3.0]),
    "c": np.complex64([1 + 2j, -3j, 2.5]),
    "t": _random.randn(2, 3, 4).astype(np.float32),
    "q": _random.randn(4, 5).astype(np.float32),
    "sq": _random.randn(3, 3).astype(np.float32),
    "e": np.zeros((0, 3), np.float32),
    "v": np.int32([1, 3, 1, 0, 5]),
    "r": np.float32([1.0, 2.0, 4.0, 7.0]),
}

UFUNCS = """
abs(i) abs(c) abs(b) absolute(f) negative(f) positive(k) sign(f) sign(c) square(i) square(b) sqrt(u) sqrt(i) sqrt(c)
exp(f) exp2(f) expm1(u) log(u) log1p(u) log2(u) log10(u) cbrt(f) sin(f) cos(i) tan(u) arcsin(u) arccos(u) arctan(f)
sinh(f) cosh(h) tanh(f) arcsinh(f) arccosh(g+4) arctanh(u) asin(u) floor(f) floor(i) floor(b) ceil(h) trunc(f)
rint(f*2) rint(i) rint(c) isnan(n) isnan(i) isinf(n) isinf(c) isfinite(n) isfinite(k) isposinf(n) isneginf(-n)
isreal(c) iscomplex(c) iscomplex(f) signbit(f) signbit(i) logical_not(i) invert(i) invert(b) bitwise_count(k)
bitwise_count(i) reciprocal(f) reciprocal(i) fabs(i) sinc(f) sinc(0.0) sinc(i) conj(c) conj(f) real(c) real(i) imag(c)
imag(f) angle(c) angle(f,deg=True) deg2rad(i) rad2deg(f) radians(h) degrees(f) nan_to_num(n)
nan_to_num(n,nan=2.0,posinf=9.0) nan_to_num(i) round(f) round(f,1) round(h,1) round(i) round(c,1) round(3.7)
around(f,-1) modf(f) modf(n) frexp(f) frexp(i) spacing(f) i0(f) add(f,1) add(b,b) add(1,2) add(i,h) add(f,1j)
subtract(f,i) multiply(b,b) multiply(s,2) true_divide(i,j) divide(i,2) floor_divide(i,j) floor_divide(f,g)
remainder(i,j) remainder(f,g) mod(f,-2) fmod(f,g) fmod(i,j) fmod(b,b) power(f,2) power(i,2) power(2,f)
power(i,jnp.abs(j)) float_power(i,2) divmod(i,j) divmod(f,g) maximum(f,0) maximum(n,1) maximum(b,m) minimum(i,2.5)
minimum(i,j) fmax(n,0) fmin(n,0) fmax(i,j) arctan2(f,g) arctan2(i,2) hypot(f,g) hypot(i,2) hypot(n,1.0) copysign(f,g)
copysign(i,-1) nextafter(f,g) heaviside(f,0.5) heaviside(n,0.5) logaddexp(f,g) logaddexp(n,1.0)
logaddexp(-jnp.inf,-jnp.inf) logaddexp2(f,2) ldexp(f,j) ldexp(i,2) gcd(i,j) gcd(s,2) lcm(i,j) left_shift(k,1)
right_shift(i,1) right_shift(k,2) bitwise_and(i,j) bitwise_or(b,m) bitwise_xor(i,3) logical_and(i,b) logical_or(f,0)
logical_xor(b,True) equal(i,3) not_equal(f,g) less(f,1) less_equal(i,j) greater(h,1.5) greater_equal(c,c)
isclose(f,f+1e-7) isclose(n,n) isclose(n,n,equal_nan=True) isclose(i,3) allclose(f,f) allclose(f,g) array_equal(f,f)
array_equal(f,u) array_equal(n,n,equal_nan=True) array_equiv(b,m) clip(f,0,1) clip(i,1,None) clip(i,0,1.5)
clip(f,min=u) clip(f,max=0) clip(0.5,0,1) where(b,f,0) where(True,1.0,2) where(m,1,2.5) where(f,u,i) where(m,h,k)
where(b) select([f>0,f>-1],[f,2*f],0) select([m],[i],1.5) piecewise(f,[f>0],[1,2])
""".split()

CREATION = """
array(1.0) array(1) array(True) array([1,2]) array([1,2.0,True]) array([[1,2],[3,4]],dtype=jnp.float16) array(f)
array([f,f]) array([jnp.sum(u),2.0]) array(1,ndmin=2) array([]) array([[],[]]) array(1j) array(2.7,jnp.int32)
asarray(s) asarray(2.5) asarray(2.5,dtype=jnp.float32) copy(f) zeros(3) zeros((2,3),int) ones((2,),jnp.int8) empty(2)
full((2,),1.0) full(2,7,jnp.int8) full((2,3),u) full((2,),jnp.asarray(1.0)) zeros_like(i) zeros_like(1.0)
ones_like(f,dtype=int) ones_like(b,shape=(2,)) empty_like(c) full_like(i,2.5) full_like(f,u) full_like(1.0,2)
arange(5) arange(2,5) arange(2.,5) arange(0,5,2) arange(0.,1,.1) arange(5,0,-2) arange(3,dtype=jnp.int8) arange(0)
arange(3,1) arange(jnp.int8(3)) linspace(0,1,5) linspace(0,10,4,endpoint=False) linspace(0,10,5,dtype=int)
linspace(0,1,5,retstep=True) linspace(u,1,3) linspace(u,1,3,axis=-1) linspace(0,1,1) linspace(0,1,0) linspace(0,1j,3)
logspace(0,2,5) logspace(0,2,3,base=2) geomspace(1,100,5) geomspace(-1,-8,4) eye(3) eye(2,3) eye(3,k=-1,dtype=int)
identity(2) tri(3) tri(2,4,1,int) tril(f) tril(t,-1) triu(i,1) triu(b) diag(u) diag(v,1) diag(v,-2) diag(sq) diag(f,1)
diag(f,-1) diag(f,5) diagonal(t) diagonal(t,1,1,2) diagonal(b) diagflat(i) diagflat(2.0,1) vander(u) vander(v,3)
vander(u,2,increasing=True) vander(u,0) meshgrid(u,v) meshgrid(u,v,indexing='ij') meshgrid(u,v,sparse=True)
meshgrid(u) indices((2,3)) indices((2,3),sparse=True) frombuffer(b'\\x01\\x02\\x03\\x04',jnp.uint8)
fromfunction(lambda*a:a[0]+a[1],(2,3),dtype=int) float32(1) int8(f) bool_(i) complex64(1) bfloat16(u)
""".split()

REDUCTIONS = """
sum(f) sum(i) sum(s) sum(k) sum(b) sum(h) sum(c) sum(1.0) sum(f,axis=0) sum(f,1,keepdims=True) sum(f,axis=(0,1))
sum(f,axis=-1) sum(f,axis=[0]) sum(f,where=b) sum(f,where=m,axis=0) sum(f,initial=2) sum(i,dtype=jnp.float16) sum(e)
sum(e,axis=0) sum(t,axis=(0,2),keepdims=True) sum(s,promote_integers=False) sum(b,dtype=bool) prod(i) prod(f,axis=1)
prod(s) prod(b) prod(f,where=b) prod(i,initial=2) max(f) max(i,axis=1) max(b) max(h) max(n) max(c)
max(f,axis=0,keepdims=True) max(f,initial=9.0) max(f,where=b,initial=-1.0) max(e,axis=0,initial=0.0) min(k)
min(f,axis=1) min(s) min(i,where=b,initial=4) amax(f) amin(f,0) mean(f) mean(i) mean(h) mean(b)
mean(f,axis=1,keepdims=True) mean(f,where=b) mean(f,axis=0,where=b) mean(i,dtype=int) mean(c)
mean(f,dtype=jnp.float16) var(f) var(i) var(f,axis=1,ddof=1) var(c) var(h) var(f,where=b) var(f,keepdims=True)
var(u,ddof=3) var(f,where=b,axis=0,ddof=1) std(f) std(f,axis=0,correction=1) std(i,keepdims=True) var(f,mean=1.0)
all(b) all(f,axis=0) all(i,where=b) any(b,axis=1) any(f) any(e) all(e) any(i,keepdims=True) argmax(f) argmax(f,axis=1)
argmin(i,axis=0) argmin(f,1,keepdims=True) argmax(n,axis=1) argmax(b) argmax(u,keepdims=True) cumsum(f)
cumsum(i,axis=1) cumsum(b) cumsum(s) cumprod(f,axis=0) cumprod(i) cumsum(f,dtype=int) cumulative_sum(v)
cumulative_sum(s) cumulative_sum(f,axis=1,include_initial=True) cumulative_prod(v) ptp(f) ptp(i,axis=1)
count_nonzero(i) count_nonzero(f,axis=0,keepdims=True) nansum(n) nansum(i) nansum(n,axis=0) nanprod(n) nanmax(n)
nanmax(n,axis=0) nanmin(n,axis=1) nanmin(n,0,keepdims=True) nanmax(i) nanmean(n,axis=1) nanmean(n,axis=0) nanmean(i)
nanvar(n[:,1:],axis=0) nanvar(n[0]) nanstd(n[0],ddof=1) nanargmax(n,axis=1) nanargmin(n,axis=0) nancumsum(n,axis=0)
nancumprod(n)
""".split()

STATISTICS = """
average(f) average(f,axis=1,weights=g) average(f,axis=1,weights=u) average(f,axis=0,returned=True)
average(i,weights=j) median(f) median(i,axis=1) median(n,axis=1) median(v,keepdims=True) quantile(f,0.3) quantile(f,u)
quantile(f,u,axis=1) quantile(f,0.3,axis=1,keepdims=True) quantile(f,0.3,method='lower')
quantile(f,0.3,method='higher') quantile(f,0.3,method='nearest') quantile(f,0.3,method='midpoint')
quantile(t,0.6,axis=(0,2)) percentile(v,30) percentile(f,u*100) nanmedian(n) nanmedian(n,axis=1)
nanquantile(n,0.25,axis=1) nanpercentile(n,40) quantile(i,0.5) cov(f) cov(f,g) cov(f,rowvar=False) cov(u)
cov(f,bias=True) cov(f,ddof=0) cov(f,fweights=v[:3]) cov(f,aweights=u) cov(f,fweights=v[:3],aweights=u) cov(i)
corrcoef(f) corrcoef(f,g) corrcoef(u) histogram(f) histogram(f,3) histogram(i,jnp.array([-4,0,8]))
histogram(f,3,range=(0,2)) histogram(f,3,density=True) histogram(f,3,weights=g) histogram(r,jnp.array([1.,2.,4.]))
histogram_bin_edges(f,4) bincount(v) bincount(v,minlength=8) bincount(v,weights=r[jnp.array([0,1,2,3,0])])
bincount(v,length=3) digitize(f,r) digitize(f,r,right=True) digitize(f,-r) digitize(f,-r,right=True) digitize(v,v[:2])
diff(r) diff(f,axis=0) diff(f,n=2) diff(b) diff(r,prepend=0) diff(f,append=g) diff(r,n=0) diff(r,n=5) ediff1d(f)
ediff1d(v,to_end=9) ediff1d(v,to_end=9,to_begin=v) gradient(r) gradient(f) gradient(f,axis=1) gradient(r,2.0)
gradient(t,2.0,3.0,axis=(0,1)) gradient(i) trapezoid(r) trapezoid(f,dx=2.0) trapezoid(f,x=u) trapezoid(f,axis=0)
trapezoid(f,x=g) trapezoid(v) convolve(r,u) convolve(u,r) convolve(r,u,'same') convolve(u,r,'same')
convolve(r,u,'valid') convolve(v,v) correlate(r,u) correlate(u,r) correlate(r,u,'full') correlate(u,r,'full')
correlate(r,u,'same') correlate(u,r,'same') correlate(c,c,'full') correlate(r,r[:2],'same') correlate(r[:2],r,'same')
unwrap(r*3) unwrap(f,axis=0,period=2) unwrap(v,period=3) polyval(u,f) polyval(v,2) polyval(f,u) mgrid[0:2,0:3]
ogrid[0:2,0:3] mgrid[0:1:3j] vectorize(lambda*a:a[0]*a[1])(f,u)
vectorize(jnp.dot,signature='(n,k),(k)->(n)')(t,q[:,0]) vectorize(jnp.dot,signature='(k),(k)->()')(t[:1],t[:,:1])
vectorize(lambda*a:a[0]**a[1],excluded={1})(f,2)
""".split()

PRODUCTS = """
dot(u,u) dot(f,u) dot(t,q) dot(2.0,f) dot(i,u) dot(2,3.0) dot(v,v) dot(t,t.transpose(0,2,1)) dot(h,h) dot(c,c)
dot(f,u,preferred_element_type=jnp.float32) matmul(f,u) matmul(u,sq) matmul(u,u) matmul(t,q) matmul(sq,t)
matmul(t[:,None],t.transpose(0,2,1)[None,:]) matmul(t[:1],t.transpose(0,2,1)) matmul(u,t) matmul(t,t[0,0])
matmul(i,i.T) matmul(b,b.T) matmul(e.T,e) matmul(t[:1,:,None],q) vdot(c,c) vdot(f,g) vdot(i,f) inner(f,g) inner(u,u)
inner(2,f) inner(t,f[:,:1]+jnp.ones(4)) outer(u,v) outer(f,c) tensordot(f,g) tensordot(t,q,1)
tensordot(t,f,((0,1),(0,1))) tensordot(t,q,(2,0)) tensordot(u,v,0) tensordot(t,q,([-1],[0])) kron(f,u) kron(i,j)
kron(2,u) kron(u,f) cross(u,u[::-1]) cross(f,g) cross(f.T,g.T,axis=0) cross(f,u,axisc=0) trace(sq) trace(f,1)
trace(t,0,1,2) trace(i) trace(sq,dtype=int) trace(b) vecdot(f,g) vecdot(c,c) vecdot(f,u) vecdot(t,t[:,:,:1],axis=1)
matvec(f,u) matvec(t,q[:,0]) vecmat(u,sq) vecmat(c,sq) vecmat(u,t) einsum('ij,jk->ik',f,sq) einsum('ij,jk',f,sq)
einsum('ij->ji',f) einsum('ij->',f) einsum('ii->i',sq) einsum('ii',sq) einsum('ij->j',f) einsum('i,j->ij',u,v)
einsum('i,i',u,u) einsum('ij,ij->ij',f,g) einsum('ij,ij->i',f,g) einsum('bij,bjk->bki',t,t.transpose(0,2,1))
einsum('...j,j->...',t,q[:,0]) einsum('...ij,...jk',t,t.transpose(0,2,1)) einsum('b...,b...->...b',t,t)
einsum('ij,jk,kl->il',f,sq,sq) einsum('ij,kj,lj,mj->iklm',f,g,sq,f) einsum('abc,cd,bd->a',t,q,q[:3])
einsum('ij,jk,kl->il',f,sq,sq,optimize=False) einsum('ij,jk,kl->il',f,sq,sq,optimize=[(0,1),(0,1)])
einsum('ij,jk,kl->il',f,sq,sq,optimize='optimal') einsum(f,[0,1],sq,[1,2],[0,2]) einsum(f,[0,1],sq,[1,2])
einsum(f,[0,Ellipsis],[Ellipsis,0]) einsum('ij,j->i',i,v[:3]) einsum('i,i->i',2.0*u,i[0]) einsum('aab->b',t[:1,:1])
einsum('iij,jk->ik',t[:2,:2],q) einsum(',ij->ij',2.0,f) einsum('i,->i',u,3) einsum('ij,ik->jk',f,g)
einsum('aij,aji->',t,t.transpose(0,2,1)) einsum('ij,jk->ik',i,i.T,preferred_element_type=jnp.float32)
""".split()

DTYPES = """
result_type(1,2.0) result_type(i,1.5) result_type(s,k) result_type(jnp.int8,1.5) result_type(h,1) result_type('int64')
result_type(jnp.bfloat16,jnp.float16) result_type(int,h) promote_types('int32','float16') promote_types(int,'float16')
promote_types('int64','int32') promote_types(int,float) promote_types('uint32','int32')
issubdtype(f.dtype,jnp.floating) issubdtype(jnp.bfloat16,jnp.floating) issubdtype(jnp.bfloat16,jnp.inexact)
issubdtype('int32',jnp.integer) issubdtype(jnp.int4,jnp.signedinteger) issubdtype(jnp.float32,jnp.float16)
issubdtype(jnp.float32,jnp.float32) issubdtype(int,jnp.integer) issubdtype(bool,jnp.integer)
issubdtype(jnp.complex64,jnp.complexfloating) issubdtype(jnp.uint8,jnp.unsignedinteger)
issubdtype(jnp.bfloat16,jnp.bfloat16) issubdtype(jnp.floating,jnp.inexact) issubdtype(jnp.bfloat16,jnp.number)
issubdtype(jnp.bfloat16,jnp.generic) can_cast('int8','int32') can_cast(jnp.float32,int)
isdtype(jnp.float32,'real_floating'.replace('_','\\x20')) isdtype(i.dtype,'integral')
isdtype('int8',('bool','numeric')) isdtype(jnp.bool_,'bool') isdtype(jnp.int8,jnp.int8) iscomplexobj(c)
iscomplexobj(f) isrealobj(1.0) isscalar(1.0) isscalar(f) isscalar(jnp.sum(f)) ndim(t) shape(t) size(t) size(t,1)
size(t,(0,1)) shape(1.0) finfo(jnp.float32).eps finfo(jnp.bfloat16).max finfo('float16').bits iinfo(jnp.int8).max
iinfo(jnp.uint32).bits dtype('int32') float32==jnp.float32 float32==jnp.dtype('float32') float32=='float32'
float32==float pi e euler_gamma inf newaxis
""".split()

ERRORS = """
sum([1,2]) sum(f,axis=2) sum(f,axis=(0,0)) sum(f,axis=1.5) sum(f,out=f) max(e) max(f,where=b) max(f,initial=u)
argmax(e,axis=0) sum(None) floor(c) cbrt(c) invert(f) negative(b) subtract(b,b) sign(b) signbit(c) isposinf(c)
gcd(f,2) lcm(b,True) ldexp(f,1.5) clip(c,0,1) copysign(c,1) hypot(c,1) round(b) modf(c) frexp(c) fabs(c) sin('a')
add(f,[1]) add(f,None) sin(f,f) add(f,g[:,:2]) array('a') array(None) array({}) array(2**40) array([2**40])
array([1,[2,3]]) array(1,order='F') zeros(-1) zeros(2.5) zeros('a') zeros_like([1]) full((2,),[1,2]) full((2,),v)
arange(None) arange([1]) linspace(0,1,-1) eye(2.5) eye(-1) tril(u) diag(t) diag(2.0) diagonal(u) vander(f) meshgrid(f)
meshgrid(u,indexing='zz') select([],[]) select([m],[]) dot(f,f) matmul(f,f) matmul(2,f) matmul(t,t) tensordot(f,f,1)
tensordot(f,f,3) tensordot(f,f,(0,(0,1))) inner(f,u[:2]) cross(v,v) trace(u) einsum('ij,jk->ik',f,f)
einsum('ij->ik',f) einsum('ij',u) einsum('ij,jk',f) einsum('ij->ii',f) kron([1],[2]) vecdot(f,v)
quantile(f,0.5,method='foo') quantile(c,0.5) quantile(f,f) bincount(f) bincount(i) bincount(v,weights=u) digitize(f,f)
diff(f,n=-1) diff(2.0) convolve(f,f) convolve(u,u,'foo') gradient(u[:1]) cov(t) cov(f,fweights=u) average(f,weights=u)
result_type() isdtype('int8','foo') promote_types('int8','foo') finfo(int) iinfo(float) cumsum(f,axis=2) nansum([1])
ediff1d([1]) var(f,ddof=1,correction=1) array_equal(f,'a') isclose('a',f) logical_and(f,None) where(f,1)
""".split()


@functools.cache
def arrays(module) -> dict:
    return {name: module.asarray(x) for name, x in INPUTS.items()}


def evaluate(module, expression: str):
    return eval("jnp." + expression, {"jnp": module, **arrays(module)})


def leaves(x) -> list:
    if isinstance(x, (tuple, list)):
        return [v for part in x for v in leaves(part)]
    return [x]


def compare(ours, theirs, expression: str) -> None:
    ours, theirs = leaves(ours), leaves(theirs)
    assert len(ours) == len(theirs), expression
    for a, b in zip(ours, theirs):
        if not isinstance(b, Given):
            assert a == b and not isinstance(a, Array), f"{expression}: {a!r}, not {b!r}"
            continue
        assert isinstance(a, Array), f"{expression}: {a!r}"
        assert a.shape == b.shape, f"{expression}: shape {a.shape}, not {b.shape}"
        assert a.dtype == b.dtype, f"{expression}: dtype {a.dtype}, not {b.dtype}"
        x, y = np.asarray(a), np.asarray(b)
        if y.dtype != bool:  # comparisons of weak operands are weak bools in JAX, which says nothing
            assert a.weak_type == b.weak_type, f"{expression}: weak_type {a.weak_type}, not {b.weak_type}"
        if y.dtype.kind not in "biu":
            wide = np.complex128 if y.dtype.kind == "c" else np.float64
            tolerance = 2e-3 if y.dtype.itemsize == 2 else 2e-6
            x, y = x.astype(wide), y.astype(wide)
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=expression)
        else:
            np.testing.assert_array_equal(x, y, err_msg=expression)


@pytest.mark.parametrize("expression", [*UFUNCS, *CREATION, *REDUCTIONS, *STATISTICS, *PRODUCTS, *DTYPES])
def test_agrees(expression, oracle):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's, about narrowing and deprecations
        theirs = oracle(lambda: evaluate(jax.numpy, expression))
        ours = evaluate(jnp, expression)
    compare(ours, theirs, expression)


@pytest.mark.parametrize("expression", ERRORS)
def test_error_class(expression, oracle):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = oracle.error(lambda: evaluate(jax.numpy, expression))
        with pytest.raises(Exception) as ours:
            evaluate(jnp, expression)
    shared = {"TypeError", "ValueError", "NotImplementedError", "OverflowError"} & set(theirs.names)
    assert shared & {c.__name__ for c in type(ours.value).__mro__}, f"{expression}: {ours.value!r}, not {theirs.name}"
    assert len(str(ours.value)) > 10
