/* break_fsync.c - a fault for tests/faults: nothing is ever synced. Linked with --wrap. */
int __wrap_fsync(int fd);

int __wrap_fsync(int fd) {
    (void)fd;
    return 0;
}
