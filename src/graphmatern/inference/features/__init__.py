"""Features of the nodes beside the graph: smoothed by products, then exact inference between the observed nodes."""
