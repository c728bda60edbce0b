#!/usr/bin/perl

# More workers than most machines have: each has its own row of the queue, so
# together they keep max=.

use lib 't/lib';
use Kvroute;

plan(skip_all => 'KVROUTE_SANITIZED: this many workers take too much memory')
    if $ENV{KVROUTE_SANITIZED};

my $workers = 160;
my $max = 40;

my $t = Kvroute->new(workers => $workers);

$t->backend('B0');

$t->upstream('u', 'kvroute_queue max=40 timeout=1h;',
             'B0 max_conns=1 max_fails=0');

# a small zone for many servers has rows for 23 processes: the others share one

$t->upstream('few', 'kvroute zone=rows;', 'B0 max_fails=0');

$t->conf(<<'EOF');
http {
%%TEMP%%
    access_log off;
    kvroute_zone zone=z:16m;
    kvroute_zone zone=rows:2m max_peers=512;

%%UPSTREAMS%%

    server {
        listen 127.0.0.1:%%PORT%% reuseport;
        location / { proxy_pass http://u; }
        location /few/ { proxy_pass http://few; }
        location /kvroute/ { kvroute_status; }
    }
}
EOF

$t->run();

ok(wait_for(sub {
    my $s = $t->status();
    return $s && $s->{zones}{z}{processes} == $workers;
}), 'each worker has a row');

sub queue { return $t->status()->{upstreams}{u}{queue} }

sub held {
    my ($uri, $bytes) = @_;
    return $t->start("POST $uri", chat(text($bytes, 1)),
                     headers => { 'X-B0' => 'wait go' });
}

my @s = held('/first', 1000);
ok(wait_for(sub { ($t->load())[0] == 1 }), 'one is at the server');

push @s, map { held('/waits', 1000) } 1 .. $max;
ok(wait_for(sub { queue()->{size} == $max }), 'the maximum number waits')
    or diag(queue()->{size});

# at any worker

my @status = map {
    wait_for(sub { queue()->{size} == $max });
    $t->post('/more', chat('x'))->{status};
} 1 .. 10;
is("@status", join(' ', (429) x 10), 'any further one is rejected');

is(queue()->{size}, $max, 'and no other one');

$t->step('go');

my @bad = grep { $_ != 200 } map { $t->finish($_)->{status} } @s;
is("@bad", '', 'all that waited are answered');
ok($t->idle(), 'no request is left in the counters');

@s = map {
    $t->start('POST /few/', chat(text(1000, 1)),
              headers => { 'X-B0' => 'wait more' })
} 1 .. 60;
ok(wait_for(sub { ($t->load())[0] == 60 }), 'counted, in a shared row too');
$t->step('more');
is(join(' ', map { $t->finish($_)->{status} } @s), join(' ', (200) x 60), 'served');
ok($t->idle(), 'no request is left in the counters');
like($t->log(), qr/\[warn\].*"rows" has no row for this process/, 'a warning');

$t->done();
