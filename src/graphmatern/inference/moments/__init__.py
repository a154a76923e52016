"""Any kernel on any graph, through Chebyshev moments at the observed nodes."""
