"""What is said of a name that a module does not have: whether JAX has it, and what is near or takes its place."""
from __future__ import annotations

import difflib
from collections.abc import Collection

# Public names of JAX's modules that have not been here when this was written; a test compares the list with JAX.
_JAX = {
    "ricalco": """
        CompilerEffortLevel Device Inline NamedSharding P Shard ad allow_f16_reductions api_util
        array_garbage_collection_guard auto_pcast check_tracer_leaks copy_to_host_async debug_key_reuse
        default_device default_matmul_precision default_prng_impl distributed dlpack ds dtypes empty_ref
        enable_checks enable_custom_prng ensure_compile_time_eval explain_cache_misses export ffi float0
        free_ref fwd_and_bwd get_abstract_mesh get_mesh host_count host_id host_ids image interpreters
        jax2tf_associative_scan_reductions legacy_prng_key lib live_arrays local_device_count log_compiles
        make_array_from_callback make_array_from_process_local_data make_array_from_single_device_arrays
        make_mesh make_user_context memory monitoring named_call named_scope nn no_execution no_tracing
        numpy_dtype_promotion numpy_rank_promotion pmap print_environment_info process_count process_index
        process_indices profiler random remove_size_one_mesh_axis_from_type reshard scipy set_mesh shard_map
        sharding smap softmax_custom_jvp stages thread_guard threefry_partitionable transfer_guard
        transfer_guard_device_to_device transfer_guard_device_to_host transfer_guard_host_to_device typing
        use_abstract_mesh version""",
    "ricalco.numpy": """
        ComplexWarning c_ fft float6_e2m3fn float6_e3m2fn fromfile fromiter frompyfunc fromstring
        histogram2d histogramdd int1 interp iterable linalg minmax packbits poly polyadd polyder polydiv polyfit
        polyint polymul polysub r_ roots top_k ufunc uint1 unpackbits""",
    "ricalco.lax": """
        AccuracyMode ConvGeneralDilatedDimensionNumbers DotAlgorithm DotAlgorithmPreset FftType
        RaggedDotDimensionNumbers RandomAlgorithm Tolerance after_all all_gather all_to_all approx_max_k
        approx_min_k axis_index axis_size broadcast_like broadcast_to_rank composite conv_general_dilated_local
        conv_general_dilated_patches conv_general_permutations conv_general_shape_tuple conv_shape_tuple
        conv_transpose conv_transpose_shape_tuple create_token dce_sink dtype empty fft index_take linalg log2
        mulhi one_minus_square pbroadcast pcast pmax pmean pmin polynomial ppermute precv psend pshuffle psum
        psum_scatter psum_scatter_start pswapaxes ragged_all_to_all ragged_dot ragged_dot_general
        reduce_window_shape_tuple rng_bit_generator rng_uniform scaled_dot shape_as_value stack stage unstack
        with_sharding_constraint""",
}
_ONE_DEVICE = "there is one device; ricalco.vmap maps a function over an axis"
# By the first of these that a name has in it: what to use.
_INSTEAD = {
    "random": "numpy.random makes the numbers, and the traced function takes them as an argument",
    "linalg": "products are in ricalco.numpy: matmul, einsum, tensordot",
    **dict.fromkeys(("pmap", "shard", "Shard", "mesh", "psum", "pmean", "pmax", "pmin", "axis_index", "all_gather",
                     "ppermute", "all_to_all", "process", "host_"), _ONE_DEVICE),
    "default_matmul_precision": "ricalco.config.update('default_matmul_precision', ...) sets it",
    "numpy_rank_promotion": "ricalco.config.update('numpy_rank_promotion', ...) sets it",
    "numpy_dtype_promotion": "ricalco.config.update('numpy_dtype_promotion', ...) sets it",
    "check_tracer_leaks": "ricalco.checking_leaks() does that",
    "log_compiles": "f.retraces() and ricalco.show_traces(f) say what was compiled, and why",
    "explain_cache_misses": "f.retraces() and ricalco.show_traces(f) say what was compiled, and why",
    "stages": "they are what f.trace(...) and f.lower(...) return",
}


def missing(module: str, name: str, names: Collection[str]) -> str:
    """The text of the error; `names` are those that the module has."""
    text = f"module {module!r} has no attribute {name!r}"
    if name in _JAX.get(module, "").split():
        instead = next((f": {way}" for part, way in _INSTEAD.items() if part in name), "")
        return f"{text}. JAX has it, ricalco does not yet{instead}."
    near = difflib.get_close_matches(name, names, 3, 0.8)
    return f"{text}. Did you mean {' or '.join(map(repr, near))}?" if near else text
