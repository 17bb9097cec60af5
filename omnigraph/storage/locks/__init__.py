"""Write locks across processes, and the turns of writers that lost a race."""
