"""The XLA FFI handlers of a run, and the form of a module that calls them."""
