"""Kernel generators: one module or folder a kernel, all with the contract of ``kernel.Kernel``.

Each kernel chooses its own blocking with a cost model (``choose_tile``, ``winograd/blocking``). Its epilogue is an
expression tree (``expr``) over the functions of ``functions``. Shared by several kernels: ``channels`` (vectors and
panels), ``grid`` (blocks of work), ``windows`` (convolution and pooling windows), ``folding`` (reductions), ``target``
(stores through the epilogue).
"""
