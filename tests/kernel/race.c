/* Threads rewrite a path while calls are made with it. usage: race EMPTY-FOLDER TRIES

   Two names of the same length, one of which the policy denies. Whatever is made is removed again; the denied name
   must never be there. Ends with 0 if it never was, 1 if it was seen, 2 if something else went wrong. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Eight bytes with the last one zero: one store each, so that no mixture of the two is ever read. */
static const char ALLOWED[8] = "allowed", DENIED[8] = ".denied";
static char path[8] __attribute__((aligned(8)));
static const char *link_path = "../link";
/* Placed so that the path in it is aligned too. */
static char room[sizeof(struct sockaddr_un) + 8] __attribute__((aligned(8)));
static struct sockaddr_un *address = (struct sockaddr_un *)(room + 6);
static char *socket_path = room + 8;
static volatile int over;

static void put(void *place, const char *name) {
    uint64_t word;
    memcpy(&word, name, 8);
    __atomic_store_n((uint64_t *)place, word, __ATOMIC_RELAXED);
}

static void *rewrite(void *unused) {
    for (unsigned n = 0; !over; n++) {
        put(path, n & 1 ? DENIED : ALLOWED);
        put(socket_path, n & 1 ? DENIED : ALLOWED);
    }
    return unused;
}

/* A link that leads to the one, then to the other: swapped by calls that are judged themselves. */
static void *swap(void *unused) {
    symlink("sub/.denied", "../to-denied");
    symlink("sub/allowed", link_path);
    for (; !over; usleep(300)) renameat2(AT_FDCWD, "../to-denied", AT_FDCWD, link_path, RENAME_EXCHANGE);
    return unused;
}

static void tidy(void) {
    unlink(ALLOWED);
    rmdir(ALLOWED);
}

static int try_one(unsigned n) {
    int fd, result = -1;
    switch (n % 10) {
    case 0: result = fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0644); break;
    case 1: result = fd = open(path, O_CREAT | O_WRONLY, 0644); break;
    case 2: result = mkdir(path, 0755); return result;
    case 3: result = symlink("x", path); return result;
    case 4: result = mknod(path, S_IFIFO | 0644, 0); return result;
    case 5: result = link("../source", path); return result;
    case 6: return renameat2(AT_FDCWD, "../spare", AT_FDCWD, path, RENAME_NOREPLACE);
    case 7: result = fd = open(link_path, O_CREAT | O_WRONLY, 0644); break;
    case 8:
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        result = bind(fd, (struct sockaddr *)address, sizeof *address);
        break;
    default:
        fd = open(".", O_TMPFILE | O_WRONLY, 0644);
        if (fd >= 0) {
            char own[32];
            snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
            result = linkat(AT_FDCWD, own, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
        }
    }
    if (fd >= 0) close(fd);
    return result;
}

int main(int count, char **words) {
    if (count != 3 || chdir(words[1])) return 2;
    unsigned tries = strtoul(words[2], NULL, 10), made = 0;
    struct stat seen;
    pthread_t threads[2];
    address->sun_family = AF_UNIX;
    put(path, ALLOWED);
    put(socket_path, ALLOWED);
    close(open("../source", O_CREAT | O_WRONLY, 0644));
    pthread_create(&threads[0], NULL, rewrite, NULL);
    pthread_create(&threads[1], NULL, swap, NULL);
    for (unsigned n = 0; n < tries; n++) {
        if (n % 10 == 6) close(open("../spare", O_CREAT | O_WRONLY, 0644));
        if (try_one(n) >= 0) made++;
        if (lstat(DENIED, &seen) == 0) {
            printf("the denied name appeared at try %u (kind %u)\n", n, n % 10);
            return 1;
        }
        tidy();
    }
    over = 1;
    for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    printf("%u of %u made\n", made, tries);
    /* Some must have succeeded and some not, or nothing was raced for. */
    return made > tries / 50 && made < tries ? 0 : 2;
}
