//! Every event at every stage, and long random lives in which nobody is lost.
