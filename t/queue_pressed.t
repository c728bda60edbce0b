#!/usr/bin/perl

# An engine that rejects each request at once always has room.  Waiting requests
# must not rush through it to be retried elsewhere, above the others' limits.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();
my $dir = $t->{dir};

$t->backend('B0');

$t->serve('P', sub {
    my ($c) = @_;
    my $data = '';

    while (defined Kvroute::Servers::backend_read($c, \$data)) {
        open my $fh, '>>', "$dir/P.log";
        print $fh "turned away\n";
        close $fh;

        syswrite($c, "HTTP/1.1 503 X\r\nContent-Type: application/json\r\n"
                     . "Retry-After: 60\r\nContent-Length: 2\r\n\r\n{}");
    }
});

$t->upstream('u', 'kvroute_queue max=40 timeout=1h;', 'P B0 max_conns=1');

$t->conf(<<'EOC');
    location / {
        proxy_pass http://u;
        proxy_next_upstream error timeout http_503 non_idempotent;
    }
EOC

$t->run();

my @s = map { $t->start("POST /$_", chat(text(1000, $_)),
                        headers => { 'X-B0' => 'wait w' }) } 1 .. 20;

sub waiting { return $t->status()->{upstreams}{u}{queue}{size} }

ok(wait_for(sub { ($t->load())[0] + waiting() == @s }), 'all have arrived');

# one is at the other server, and one was rejected

my ($active) = $t->load();
cmp_ok($active, '<=', 2, "the others wait: $active");

$t->step('w');
is($t->finish($_)->{status}, 200, 'served') for @s;

my @turned = $t->backend_log('P');
is(scalar @turned, 1, 'one was rejected');
ok($t->idle(), 'no request is left in the counters');

$t->done();
