#!/usr/bin/perl

# A reload with fewer servers and more alias memory for each, in total the same:
# workers that shut down do not use the new sizes for the old memory.

use lib 't/lib';
use Kvroute;
use Kvroute::Publisher;

my $t = Kvroute->new();
my $p = Kvroute::Publisher->new($t, 'one');
my ($e, $live) = @$p{qw(port live)};

sub conf {
    my ($size, $peers, $aliases) = @_;

    $t->upstream('one', (map { "server 127.0.1.$_:9 down;" } 1 .. $peers - 1),
                 "server 127.0.0.1:$e;",
                 "kvroute_events port=$live aliases=${aliases}k;");
    $t->conf("    kvroute_zone zone=z:${size}m max_peers=$peers;\n"
             . '    location /one/ { proxy_pass http://one/; }');
}

conf(4, 32, 64);
$t->run();
ok(wait_for(sub { $p->events()->{sources} }), 'the publisher is connected');

# events arrive all the time

my $pid = fork();
die "fork: $!" unless defined $pid;

if ($pid == 0) {
    for (1 .. 100_000) {
        eval { $t->post('/v1/chat/completions', chat(text(500, $_)),
                        port => $e) };
    }

    POSIX::_exit(0);
}

ok(wait_for(sub { $p->events()->{stored} }), 'events are read');
conf(8, 1, 2048);
$t->reload();
ok(wait_for(sub { $p->events()->{stored} }), 'events are read after a reload');

kill 'KILL', $pid;
waitpid $pid, 0;

$t->stop();
$t->done();
