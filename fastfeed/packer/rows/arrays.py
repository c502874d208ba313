"""Arrays and decoded images as bytes, without loss: npy keeps dtype and shape of any array, png the pixels it can hold.

numpy, torch and Pillow are asked for only by who gives their objects, so that packing bytes loads none of them.
"""

import io
import warnings
from functools import lru_cache
from typing import Any, NoReturn

from fastfeed.errors import UsageError

_IMAGE_SIDE = 16
"""An array with two sides of at least so many pixels is taken for an image."""
_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
"""Modes of Pillow that PNG gives back as they are (PNG 3rd edition, §11.2.1: depth 1 to 16, gray, RGB, palette, alpha)."""
_NUMPY_ONLY = "Convert it to a numpy array of numbers, bytes or text; nothing is ever pickled."


def is_array(value: object) -> bool:
    """Whether numpy or torch made it, without importing either."""
    return _maker(value) in {"numpy", "torch"}


def is_pil(value: object) -> bool:
    """Whether it is a Pillow image, without importing Pillow."""
    return _maker(value) == "PIL"


def _is_tensor(value: object) -> bool:
    return _maker(value) == "torch"


def _maker(value: object) -> str:
    return _made_by(type(value))  # type: ignore[arg-type] # types are hashable, whatever their metaclass


@lru_cache(maxsize=1 << 10)
def _made_by(kind: type) -> str:
    """numpy, torch or PIL for arrays, tensors and images, empty for any other type. Asked for each value, so it is kept."""
    known = {("numpy", "ndarray"), ("numpy", "generic"), ("torch", "Tensor"), ("PIL.Image", "Image")}
    found = (base.__module__.partition(".")[0] for base in kind.__mro__ if (base.__module__, base.__name__) in known)
    return next(found, "")


def looks_like_an_image(value: Any) -> bool:  # noqa: ANN401 - an array
    """Whether an array is probably a decoded image: 8 bits in two or three dimensions, or three or four channels of floats."""
    shape, kind = tuple(value.shape), str(value.dtype)
    channels = {1, 3, 4} if "uint8" in kind else {3, 4} if "float" in kind else set()
    if not channels or len(shape) not in {2, 3} or (len(shape) == 2 and "uint8" not in kind):  # noqa: PLR2004 - height, width
        return False
    if len(shape) == 3 and not {shape[0], shape[2]} & channels:  # noqa: PLR2004 - channels first or last
        return False
    return bool(sorted(shape)[-2] >= _IMAGE_SIDE)


def scalar(value: Any) -> bool | int | float | None:  # noqa: ANN401 - an array
    """The number or truth value of an array without dimensions, None for any other."""
    if tuple(value.shape) != ():
        return None
    found = value.item()
    return found if type(found) in {bool, int, float} else None


def npy(name: str, value: Any) -> bytes:  # noqa: ANN401 - a numpy array or number, or a tensor
    """An array as the bytes of an .npy file.

    Args:
        name: Its column, for messages.
        value: Of any dtype without Python objects, any shape and strides.

    Raises:
        UsageError: npy cannot give it back as it is.
    """
    import numpy as np  # noqa: PLC0415 - only who gives arrays has it loaded already

    array, form = _to_numpy(name, value), np.lib.format
    if array.dtype.hasobject:
        _refuse(name, f"an array of Python objects ({array.dtype})")
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dtypes that numpy would pickle (refused here), of npy versions 2 and 3
        if not _is_known(form, array.dtype):
            _refuse(name, f"an array of {array.dtype}, which npy does not know")
        form.write_array(out, array, allow_pickle=False)
        if array.dtype.names is not None:
            try:  # a header that numpy refuses to read again: it has a limit for its length
                form.read_array(io.BytesIO(out.getvalue()), allow_pickle=False)
            except ValueError as error:
                msg = f"column {name!r} holds an array with {len(array.dtype.names)} fields, which numpy would not read again"
                raise UsageError(msg, got=str(error)[:200], hint="Give its fields as arrays of their own.") from error
    return out.getvalue()


def _is_known(form: Any, dtype: Any) -> bool:  # noqa: ANN401 - numpy.lib.format and a dtype
    """Whether npy has words for a dtype."""
    try:
        return bool(form.descr_to_dtype(form.dtype_to_descr(dtype)) == dtype)
    except (ValueError, TypeError):  # fields that overlap
        return False


def _to_numpy(name: str, value: Any) -> Any:  # noqa: ANN401
    import numpy as np  # noqa: PLC0415

    if isinstance(value, np.ma.MaskedArray):
        _refuse(name, "a masked array, and npy has no mask", "Give data and mask as two arrays.")
    if not _is_tensor(value):
        return np.asarray(value)
    if str(value.layout) != "torch.strided" or value.is_quantized:
        _refuse(name, f"a tensor that is {'quantized' if value.is_quantized else value.layout}, which numpy has not")
    try:
        return value.detach().cpu().resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError) as error:
        what = f"a tensor of {value.dtype} that numpy has not ({error})"
        _refuse(name, what, "Convert it (.float() is exact for bfloat16), or view it as whole numbers.")


def _refuse(name: str, what: str, hint: str = _NUMPY_ONLY) -> NoReturn:
    msg = f"column {name!r} holds {what}"
    raise UsageError(msg, expected="what npy gives back as it is", got=what, hint=hint)


def png(name: str, value: Any) -> bytes:  # noqa: ANN401 - an image or an array
    """A decoded image as PNG, its pixels as they are.

    Args:
        name: Its column, for messages.
        value: A Pillow image; a numpy array of shape (H, W) or (H, W, 1 to 4) of uint8, (H, W) of bool or uint16; or such a
            tensor, with channels first as torch has them.

    Raises:
        UsageError: PNG has no such pixels.
    """
    from PIL import Image  # noqa: PLC0415 - packing bytes needs no Pillow

    if is_pil(value):
        image = value
        if image.mode not in _PNG_MODES:
            _no_png(name, f"an image of mode {image.mode}")
    else:
        array = _to_numpy(name, value)
        if _is_tensor(value) and array.ndim == 3 and array.shape[0] in {1, 3, 4}:  # noqa: PLR2004 - channels, height, width
            array = array.transpose(1, 2, 0)
        if not _has_png(array):
            _no_png(name, f"an array of {array.dtype} and shape {tuple(value.shape)}")
        if array.ndim == 3 and array.shape[2] == 1:  # noqa: PLR2004
            array = array[:, :, 0]
        image = Image.fromarray(array.astype(array.dtype.newbyteorder("="), order="C", copy=False))
    out = io.BytesIO()
    (_whole_palette(image) if image.mode == "P" else image).save(out, "PNG")
    return out.getvalue()


def _whole_palette(image: Any) -> Any:  # noqa: ANN401 - Pillow images
    """With a colour for each index: Pillow writes as many bits as the palette needs, and would cut those beyond it."""
    mode = image.palette.mode
    colours = image.getpalette(mode)
    if (image.getextrema()[1] + 1) * len(mode) <= len(colours):
        return image
    found = image.copy()
    found.putpalette([*colours, *bytes(256 * len(mode) - len(colours))], mode)
    return found


def _has_png(array: Any) -> bool:  # noqa: ANN401
    if 0 in array.shape:
        return False
    if array.ndim == 2:  # noqa: PLR2004 - height, width
        return array.dtype.name in {"uint8", "uint16", "bool"}
    return array.ndim == 3 and array.dtype.name == "uint8" and array.shape[2] in {1, 2, 3, 4}  # noqa: PLR2004


def _no_png(name: str, what: str) -> NoReturn:
    msg = f"column {name!r} holds {what}, which PNG cannot give back as it is"
    raise UsageError(msg, got=what, hint=f"Use encode={{{name!r}: 'npy'}} (of a Pillow image: of its array).")
