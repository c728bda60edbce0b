#!/usr/bin/perl

# State of waiting requests, and its lifetime: cached prefixes, files of bodies,
# reservations; and the identity of tenants.

use lib 't/lib';
use Kvroute;

# debug lines show how often a body was read

BEGIN { $ENV{KVROUTE_LOG} = 'debug_http' }

my $t = Kvroute->new();

# engines that report waiting requests while a file "full" exists

for my $name ('E0', 'E1') {
    my $dir = $t->{dir};

    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';

        while (defined(my $head = Kvroute::Servers::backend_read($c, \$data))) {
            my $body = $name;

            if ($head =~ m{^GET /metrics }) {
                $body = 'vllm:num_requests_waiting{model_name="m"} '
                        . (-e "$dir/full_$name" ? 5 : 0) . "\n";
            }

            Kvroute::Servers::backend_send($c, 200, $body);
        }
    });
}

$t->backend('B0');

# an answer larger than any socket buffer

my $large = 8 << 20;

$t->serve('L0', sub {
    my ($c) = @_;
    my $data = '';

    Kvroute::Servers::backend_read($c, \$data);
    syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: $large\r\n\r\n");
    syswrite($c, 'x' x $large);
});

$t->upstream('choosy',
             'kvroute kv_cache zone=z max_pending=auto max_waiting=0;',
             'kvroute_queue max=40 timeout=1h;', 'kvroute_probe interval=1s;',
             'E0 E1 max_fails=0');
$t->upstream('many', 'kvroute kv_cache zone=z max_pending=8k;',
             'kvroute_queue max=100 timeout=1h;', 'B0 max_fails=0');
$t->upstream('one', 'kvroute_queue max=40 timeout=1h;',
             'B0 max_conns=1 max_fails=0');
$t->upstream('other', 'kvroute kv_cache zone=y;',
             'kvroute_queue max=40 timeout=1h;',
             'B0 max_conns=1 max_fails=0');
$t->upstream('large', 'kvroute_queue max=40 timeout=1h;',
             'L0 max_conns=1 max_fails=0');

$t->conf(<<'EOF');
    kvroute_zone zone=z:2m;
    kvroute_zone zone=y:2m;
    proxy_cache_path %%DIR%%/cache keys_zone=c:1m;

    log_format q '$request_uri $status $kvroute_queue_status '
                 '$kvroute_queue_time';
    access_log access.log q;

    client_max_body_size 8m;
    client_body_buffer_size 1m;
    kvroute_request tenant=$http_x_tenant;

    location /file/ {
        client_body_buffer_size 1k;
        proxy_buffering off;
        proxy_pass http://one;
    }
    location /other/ {
        client_body_buffer_size 1k;
        proxy_pass http://other;
    }
    location /cached/ {
        proxy_cache c;
        proxy_cache_valid 200 1h;
        proxy_pass http://large;
    }
EOF

$t->run();

my $seed = 700;

sub queue { return $t->status()->{upstreams}{$_[0]}{queue} }

sub waiting {
    my ($n, $upstream) = @_;
    return wait_for(sub { queue($upstream)->{size} == $n });
}

sub inside {
    my ($n) = @_;
    return wait_for(sub { ($t->load())[0] == $n });
}

sub held {
    my ($uri, $file, $bytes, %headers) = @_;
    return $t->start("POST $uri", chat(text($bytes, $seed++)),
                     headers => { 'X-B0' => "wait $file", %headers });
}

my $debug = $t->version() && $t->{version} =~ /--with-debug/;

# returns how often a body was read

sub reads { return scalar(() = $t->log() =~ /kvroute prompt: rc/g) }

# sets whether an engine reports waiting requests

sub full {
    my ($name, $on) = @_;
    my $file = "$t->{dir}/full_$name";

    $on ? $t->step("full_$name") : unlink $file;

    return wait_for(sub {
        my $n = $t->peer('choosy', $t->{vars}{$name})->{engine}{waiting};
        return defined $n && ($on ? $n > 0 : $n == 0);
    });
}

# requests that wait for the peer with their prompt, while another one is idle

SKIP: {
    skip 'nginx was built without --with-debug', 8 unless $debug;

    # 30 KB in small steps, from which no rate is learned: so waiting is better

    my $prefix = text(30_000, 1);
    ok(full('E1', 1), 'prompts: one is full');

    $t->post('/choosy/prime', chat(substr $prefix, 0, 6000 * $_)) for 1 .. 5;

    ok(full('E0', 1), 'prompts: the other, too');
    ok(full('E1', 0), 'prompts: and now the other only');

    my $before = reads();
    my @s = map { $t->start('POST /choosy/x',
                            chat($prefix . text(20_000, 10 + $_))) } 1 .. 3;
    my @status = map { $t->finish($_)->{status} } @s;

    is("@status", '200 200 200', 'prompts: answered');
    ok(wait_for(sub { 3 == (() = $t->access_log()
                                 =~ m{^/choosy/x 200 waited }mg) }),
       'prompts: all have waited') or diag($t->access_log());
    is(reads() - $before, 3, 'prompts: each was read once');

    # 50 KB are 128 entries, good for 8 ms; and once at admission

    my $looks = () = $t->log() =~ /queue: looked up, entries 128$/mg;
    my $most = 0;

    $most += 2 + int($_ * 1000 / 9)
        for $t->access_log() =~ m{^/choosy/x 200 waited (\S+)$}mg;

    cmp_ok($looks, '>=', 3, 'prompts: looked up');
    cmp_ok($looks, '<=', $most, 'prompts: not too often');
}

# many admissions at a time: others are served in between

SKIP: {
    skip 'nginx was built without --with-debug', 5 unless $debug;

    my @s = held('/many/first', 'm0', 30_000);
    ok(inside(1), 'many: one is at the server');

    push @s, map { held('/many/x', 'm0', 100) } 1 .. 40;
    ok(waiting(40, 'many'), 'many: all others wait');

    my $before = length $t->log();

    $t->step('m0');
    my @bad = grep { $_ != 200 } map { $t->finish($_)->{status} } @s;
    is("@bad", '', 'many: all are answered');

    my @n = substr($t->log(), $before) =~ /kvroute queue: admitted (\d+)/g;
    my $sum = 0;
    $sum += $_ for @n;

    is($sum, 40, 'many: all were admitted');
    is((grep { $_ > 16 } @n), 0, 'many: no more than 16 at a time')
        or diag("@n");
}

# the file of a body is closed when the response begins, as without a queue

sub files {
    return scalar grep { (readlink($_) // '') =~ m{/client_body/} }
                  map { glob "/proc/$_/fd/*" } $t->workers();
}

{
    my @s = held('/one/first', 'f0', 1000);
    ok(inside(1), 'files: one is at the server');

    push @s, held('/file/x', 'f0', 9000, 'X-B0' => 'stream 1',
                  'X-Step' => 'f');
    ok(waiting(1, 'one'), 'files: the next one waits');
    is(files(), 1, 'files: its body is in a file');

    $t->step('f0');
    is($t->finish($s[0])->{status}, 200, 'files: it is admitted');
    ok($t->read_until($s[1], qr/: ping/), 'files: its response has begun');
    is(files(), 0, 'files: the file is closed');

    $t->step('f1');
    ok($t->read_until($s[1], qr/data: event 1/), 'files: the response continues');
}

# a request that the cache answers has no reservation, even if its client is
# slow

{
    is(length $t->get('/cached/x')->{body}, $large, 'cache: an answer');
    ok($t->idle(), 'cache: no request is in the counters');

    my $s = $t->start('GET /cached/x');
    my $data = $t->read_until($s, qr/\r\n\r\n/);

    like($data, qr/^HTTP\S+ 200/, 'cache: it begins');
    ok(inside(0), 'cache: without a reservation');

    # and it makes no other request wait

    is(length $t->get('/cached/y')->{body}, $large, 'cache: another answer');
    like($t->access_log(), qr{^/cached/y 200 passed }m,
         'cache: without waiting');

    close $s;
    ok($t->idle(), 'cache: no request is left in the counters');
}

# Bodies are read before their upstream is known, with the first zone's hashes.
# A request that waits at another zone's upstream was not looked up there if the
# order does not need it: later the chain is computed for that zone, and stored
# once (the leak sanitizer checks this).

{
    my @s = held('/other/0', 'o0', 30_000);
    ok(wait_for(sub { $t->backend_log('B0')
                      && ($t->backend_log('B0'))[-1] eq '/other/0' }),
       'another zone: one is at the server');

    push @s, map { held("/other/$_", 'o0', 30_000) } 1 .. 3;
    ok(waiting(3, 'other'), 'another zone: three wait');

    $t->step('o0');
    is($t->finish($_)->{status}, 200, 'another zone: served') for @s;
}

# These names have the same crc32, and murmur2 values that differ in the lowest
# bit only: with these hashes two tenants would share a slot.

{
    my $a = 'abbbbabbaabaaabbaaabbbaaabbbabbbabaabbabbbaaaaab';
    my $b = 'bbbbaababbaaabaaaaabbbababaaabaaabbaaaabbabababb';

    my @s = held('/one/t', 't0', 1000);
    ok(inside(1), 'tenants: one is at the server');

    push @s, map { held('/one/a', 't0', 1000, 'X-Tenant' => $a) } 1 .. 4;
    ok(waiting(4, 'one'), 'tenants: four of one wait');
    push @s, map { held('/one/b', 't0', 1000, 'X-Tenant' => $b) } 1 .. 4;
    ok(waiting(8, 'one'), 'tenants: and four of another');

    $t->step('t0');
    $t->finish($_) for @s;

    my ($order) = join('', map { m{^/one/(\w)$} ? $1 : () }
                           $t->backend_log('B0')) =~ /t(\w+)$/;

    # two of the first four, but workers can be a step apart

    my $n = substr($order, 0, 4) =~ tr/b//;

    ok($n >= 1 && $n <= 3, 'tenants: they take turns') or diag($order);
}

$t->done();
