// HDF5 has a text on how it was built, with the folder, the day and the compiler's arguments, and prints it where headers and library are of two
// versions. It would make each build of a wheel another one. This one is linked before the library, so that the library's own stays out.
__attribute__((visibility("hidden"))) const char H5build_settings[] = "";
