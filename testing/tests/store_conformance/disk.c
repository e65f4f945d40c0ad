/* A disk between a process and its files, to be preloaded. It keeps, beside each file under $AGENTRUN_DISK/live, the image that was last
 * synced, so that a power cut can be played: what counts is what is in `synced`. It can also fail syncs, or lie about them.
 *
 *   live/ID/...     where a store works        synced/ID/...   its files as they were last synced
 *   failing/ID      syncs of ID fail           syncs           a line a sync
 *   lock            held over a sync with its image, and by whoever takes the images of one instant
 *
 * A removal counts from the next sync of a file in the same folder on and a rename at once, as on a file system with a journal; folders
 * count at once. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int (*sync_call)(int);

static int keep_image(int fd, const char *root, const char *rest) {
  char name[PATH_MAX * 2], buffer[1 << 16];
  snprintf(name, sizeof name, "%s/synced/%s", root, rest);
  for (char *at = name + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
    *at = 0;
    mkdir(name, 0700);
  }
  int image = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (image < 0) return -1;
  /* Only a file just made is open for writing alone; a second descriptor of any other would drop SQLite's locks when it is closed. */
  int own = -1;
  if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    fd = own = open(link, O_RDONLY | O_CLOEXEC);
  }
  off_t at = 0;
  ssize_t got;
  while ((got = pread(fd, buffer, sizeof buffer, at)) > 0) {
    if (pwrite(image, buffer, (size_t)got, at) != got) {
      got = -1;
      break;
    }
    at += got;
  }
  close(image);
  if (own >= 0) close(own);
  return got < 0 ? -1 : 0;
}

/* Drops the images of files that are no longer in the folder of `rest`. */
static void forget_removed(const char *root, const char *rest) {
  char images[PATH_MAX * 2], name[PATH_MAX * 3];
  int folder = (int)(strrchr(rest, '/') - rest);
  snprintf(images, sizeof images, "%s/synced/%.*s", root, folder, rest);
  DIR *list = opendir(images);
  if (!list) return;
  for (struct dirent *entry; (entry = readdir(list));) {
    if (entry->d_type != DT_REG) continue;
    snprintf(name, sizeof name, "%s/live/%.*s/%s", root, folder, rest, entry->d_name);
    if (access(name, F_OK) == 0) continue;
    snprintf(name, sizeof name, "%s/%s", images, entry->d_name);
    unlink(name);
  }
  closedir(list);
}

static int on_disk(int fd, const char *call) {
  sync_call real = (sync_call)dlsym(RTLD_NEXT, call);
  const char *root = getenv("AGENTRUN_DISK");
  char link[64], path[PATH_MAX], name[PATH_MAX * 2];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  struct stat what;
  if (!root || length < 0 || fstat(fd, &what) != 0 || !S_ISREG(what.st_mode) || what.st_nlink == 0) return real(fd);
  path[length] = 0;
  size_t lead = strlen(root);
  if (strncmp(path, root, lead) != 0 || strncmp(path + lead, "/live/", 6) != 0) return real(fd);
  const char *rest = path + lead + 6;
  snprintf(name, sizeof name, "%s/failing/%.*s", root, (int)strcspn(rest, "/"), rest);
  if (access(name, F_OK) == 0) {
    errno = EIO;
    return -1;
  }
  /* A drive that acknowledges what it does not keep. */
  if (getenv("AGENTRUN_DISK_LIES")) return 0;
  snprintf(name, sizeof name, "%s/lock", root);
  int lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0 || flock(lock, LOCK_EX) != 0) abort();
  int done = real(fd);
  if (done == 0 && keep_image(fd, root, rest) != 0) abort();
  if (done == 0) forget_removed(root, rest);
  snprintf(name, sizeof name, "%s/syncs", root);
  int syncs = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (syncs >= 0) {
    dprintf(syncs, "%s\n", rest);
    close(syncs);
  }
  close(lock);
  return done;
}

int fsync(int fd) { return on_disk(fd, "fsync"); }

int fdatasync(int fd) { return on_disk(fd, "fdatasync"); }

int rename(const char *from, const char *to) {
  int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
  const char *root = getenv("AGENTRUN_DISK");
  int done = real(from, to);
  size_t lead = root ? strlen(root) : 0;
  if (done != 0 || !root || strncmp(from, root, lead) != 0 || strncmp(from + lead, "/live/", 6) != 0) return done;
  char old[PATH_MAX * 2], new[PATH_MAX * 2];
  snprintf(old, sizeof old, "%s/synced/%s", root, from + lead + 6);
  snprintf(new, sizeof new, "%s/synced/%s", root, to + lead + 6);
  real(old, new);
  return done;
}
