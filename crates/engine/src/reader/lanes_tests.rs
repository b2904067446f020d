//! Whether lanes recognise how an object is read, and fetch what comes next and little else.

