/* Answers each request, after a delay of so many microseconds, with 200 and nothing else. Prints its port; ends with its
   standard input. A request is a head without a body, and one of a connection is answered before the next is sent. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
static int matched[FD_SETSIZE]; /* characters of the empty line that a connection has sent last */
static struct { int64_t due; int fd; } waiting[FD_SETSIZE]; /* a ring: all wait equally long */
static unsigned first, next;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

static int listening(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 512)) exit(1);
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

/* Says whether the connection goes on. */
static int receive(int fd, int64_t delay) {
    static const char end[] = "\r\n\r\n";
    char text[4096];
    ssize_t size = recv(fd, text, sizeof text, 0);
    for (ssize_t i = 0; i < size; i++) {
        matched[fd] = text[i] == end[matched[fd]] ? matched[fd] + 1 : text[i] == '\r';
        if (matched[fd] < 4) continue;
        matched[fd] = 0;
        waiting[next % FD_SETSIZE].due = now() + delay;
        waiting[next++ % FD_SETSIZE].fd = fd;
    }
    return size > 0;
}

static void answer_due(void) {
    for (int64_t time = now(); first != next && waiting[first % FD_SETSIZE].due <= time; first++)
        send(waiting[first % FD_SETSIZE].fd, answer, sizeof answer - 1, 0);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    int64_t delay = atoll(arguments[1]);
    int one = 1, door = listening();
    signal(SIGPIPE, SIG_IGN);
    fd_set open;
    FD_ZERO(&open);
    FD_SET(0, &open);
    FD_SET(door, &open);
    for (;;) {
        fd_set ready = open;
        int64_t left = first == next ? 1000000 : waiting[first % FD_SETSIZE].due - now();
        struct timeval patience = {.tv_sec = left / 1000000, .tv_usec = left > 0 ? left % 1000000 : 0};
        if (select(FD_SETSIZE, &ready, NULL, NULL, &patience) < 0) return 1;
        if (FD_ISSET(0, &ready)) return 0;
        for (int fd = 1; fd < FD_SETSIZE; fd++) {
            if (!FD_ISSET(fd, &ready)) continue;
            if (fd == door) {
                int connection = accept(door, NULL, NULL);
                if (connection < 0 || connection >= FD_SETSIZE) return 1;
                setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                matched[connection] = 0;
                FD_SET(connection, &open);
            } else if (!receive(fd, delay)) {
                FD_CLR(fd, &open);
                close(fd);
            }
        }
        answer_due();
    }
}
