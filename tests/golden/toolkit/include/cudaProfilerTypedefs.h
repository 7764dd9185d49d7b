// No profiler calls in the golden toolkit.
