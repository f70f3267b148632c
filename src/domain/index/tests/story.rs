//! Single properties of the index, each told by a small population.
