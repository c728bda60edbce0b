#!/usr/bin/perl

# Probes: capacity, other routers' load, restarts, in every dialect; late,
# wrong, huge and missing answers; reloads and shutdown during probes.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

# one engine of each kind, all with the same cache

my @kinds = qw(vllm vllm-old sglang trtllm tgi llamacpp);
my %port;

for my $kind (@kinds) {
    ($port{$kind}) = $t->engines(1, '--hardware', 'none', '--engine', $kind,
                                 '--model', 'm', '--kv-cache-size', 2048,
                                 '--block-size', 16);
}

my ($ranks) = $t->engines(1, '--hardware', 'none', '--model', 'm',
                          '--kv-cache-size', 2048, '--block-size', 16,
                          '--metrics-engines', 2);
my ($loads) = $t->engines(1, '--hardware', 'none', '--engine', 'sglang',
                          '--model', 'm', '--kv-cache-size', 2048,
                          '--block-size', 16, '--disable-metrics');
my ($slow) = $t->engines(1, '--model', 'm', '--enable-prompt-tokens-details',
                         '--output-tokens', 1000);

# and servers with endless framing: digits of a size, chunk extensions, the line
# between two chunks; each reports how much it could send

my @endless = (
    [ 'digits', '', '0' x 65536 ],
    [ 'extensions', '', ('1;' . 'x' x 4000 . "\r\na\r\n") x 16 ],
    [ 'line', "1\r\na", "\r" x 65536 ],
    [ 'trailer', "1\r\na\r\n0\r\n", 'X: ' . 'y' x 65533 ]
);

for my $i (0 .. $#endless) {
    my ($name, $first, $again) = @{$endless[$i]};

    $t->serve("F$i", sub {
        my ($c) = @_;
        my $data = '';
        my $sent = 0;

        Kvroute::Servers::backend_read($c, \$data);
        syswrite($c, "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
                     . $first);

        while ($sent < 64e6) {
            $sent += syswrite($c, $again) // last;
        }

        Kvroute::write_file("$t->{dir}/$name.new", $sent);
        rename "$t->{dir}/$name.new", "$t->{dir}/$name";
    });
}

$t->upstream('all', 'E0 E1 E2 E3 E4 E5 E6 E7',
             'kvroute_probe interval=50ms timeout=1s;');
$t->upstream('slow', 'E8',
             'kvroute_probe interval=50ms timeout=1h url=/metrics; kvroute_engine vllm;');
$t->upstream('endless', 'F0 F1 F2 F3',
             'kvroute_probe interval=50ms timeout=1h;');
$t->upstream('one', 'E0', 'server 127.0.0.2:%%E0%%;');

my $conf = <<'EOF';
    kvroute_zone zone=z:4m;

    location /v1/ { proxy_pass http://all; proxy_buffering off; }
    location /one/ { proxy_pass http://one/; proxy_buffering off; }
    location /slow/ { proxy_pass http://slow/; proxy_buffering off; }
EOF

$t->conf($conf);
$t->run();

sub peer { return $t->peer('all', $_[0]); }
sub engine { return peer($_[0])->{engine}; }

# --- capacity, in tokens of the engine and bytes of the index

my $tokens = 2048 * 16;

for my $kind (grep { $_ ne 'llamacpp' } @kinds) {
    ok(wait_for(sub { (engine($port{$kind})->{capacity_tokens} || 0)
                      == $tokens }), "$kind: capacity");
    is(peer($port{$kind})->{capacity_bytes}, $tokens * 4,
       "$kind: in bytes");
    is(engine($port{$kind})->{name}, $kind =~ s/-old//r, "$kind: recognized");
}

ok(wait_for(sub { (engine($ranks)->{capacity_tokens} || 0) == $tokens }),
   'ranks are summed');
ok(wait_for(sub { (engine($loads)->{capacity_tokens} || 0) == $tokens }),
   'sglang without metrics: its loads');
ok(wait_for(sub { defined engine($port{llamacpp})->{running} }),
   'llama.cpp: no capacity, but load');
ok(!exists engine($port{llamacpp})->{capacity_tokens}, 'no capacity');

# --- Prometheus has the reported values only

{
    my %m = $t->get('/kvroute/metrics')->{body}
            =~ /^(kvroute_peer_engine_\w+)\{.*:$port{vllm}"\} (\S+)$/mg;
    my $e = engine($port{vllm});

    is($m{kvroute_peer_engine_capacity_tokens}, $tokens, 'metrics: capacity');
    is($m{kvroute_peer_engine_running_requests}, 0, 'metrics: running');
    ok(abs($m{kvroute_peer_engine_kv_usage_ratio} - $e->{kv_usage}) < 0.001,
       'metrics: KV use');

    unlike($t->get('/kvroute/metrics')->{body},
           qr/^kvroute_peer_engine_capacity_tokens\{.*:$port{llamacpp}"/m,
           'metrics: llama.cpp reports no capacity');
}

# --- framing bytes count towards the limit

for my $i (0 .. $#endless) {
    my $name = $endless[$i][0];
    my $file = "$t->{dir}/$name";

    ok(wait_for(sub { -e $file }), "endless $name: disconnected");
    cmp_ok(Kvroute::slurp($file), '<', 16e6, "endless $name: soon");
    ok($t->peer('endless', $t->{vars}{"F$i"})->{engine}{failed} > 0,
       "endless $name: no answer");
}

# --- requests by others, without our own

$t->control($slow, { metrics => 'ok' });

my @streams = ('POST /v1/chat/completions',
               chat('x', stream => JSON::PP::true, max_tokens => 1000));
my @others = map { $t->start(@streams, port => $slow) } 1 .. 8;
my $own = $t->start('POST /slow/v1/chat/completions', $streams[1]);

$t->read_until($_, qr/data: /) for @others, $own;

my $e;
ok(wait_for(sub { $e = $t->peer('slow', $slow)->{engine};
                  ($e->{foreign} || 0) == 8 }), 'other routers\' load')
    or diag(JSON::PP->new->encode($e));
close $_ for @others, $own;

# --- a restart

my $body = chat(text(8000, 1), max_tokens => 1);

sub restarted {
    my ($kind) = @_;

    my $p = $port{$kind};
    my $before = peer($p)->{cache}{flushes_probe};

    wait_for(sub { $t->post('/v1/chat/completions', $body);
                   ($t->control($p)->{requests} || 0) > 0 });
    wait_for(sub { (engine($p)->{cache_queries} || 1) > 0 });

    $t->control($p, { restart => JSON::PP::true });

    ok(wait_for(sub { peer($p)->{cache}{flushes_probe} > $before }),
       "$kind: a restart is noticed");
}

# --- useless answers

for my $mode (qw(garbage huge empty 404 500 frozen)) {
    my $asked = engine($port{vllm})->{probes};

    $t->control($port{vllm}, { metrics => $mode });

    ok(wait_for(sub { engine($port{vllm})->{probes} > $asked + 3 }),
       "metrics $mode: probes continue");
    is($t->post('/one/v1/chat/completions', chat('x'))->{status}, 200,
       "metrics $mode: requests are served");
    is(engine($port{vllm})->{capacity_tokens}, $tokens,
       "metrics $mode: known values stay");
}

$t->control($port{vllm}, { metrics => 'ok', metrics_delay_ms => 5000 });
my $failed = engine($port{vllm})->{failed};
ok(wait_for(sub { engine($port{vllm})->{failed} > $failed }),
   'a late answer counts as none');
cmp_ok(engine($port{vllm})->{age_ms}, '>', 100, 'known values get old');
$t->control($port{vllm}, { metrics_delay_ms => 0 });

# --- an engine that ends and returns

restarted('vllm');

$t->kill_engine($port{sglang});
my $flushed = peer($port{sglang})->{cache}{flushes_probe};
my $n = engine($port{sglang})->{failed};
ok(wait_for(sub { engine($port{sglang})->{failed} > $n }), 'gone');
$t->start_engine($port{sglang}, 1, '--hardware', 'none', '--engine', 'sglang',
                 '--model', 'm');
ok(wait_for(sub { peer($port{sglang})->{cache}{flushes_probe} > $flushed }),
   'back, with an empty cache');

# --- reloads, with probes running

for (1 .. 20) {
    $t->reload();
}

$n = engine($port{vllm})->{probes};
ok(wait_for(sub { engine($port{vllm})->{probes} > $n + 5 }),
   'probes continue after 20 reloads');

# old workers do not probe any more: the rate is that of one worker

$n = $t->control($port{tgi})->{connections};

# a missing answer does not delay the shutdown

$t->control($slow, { metrics_delay_ms => 3600_000 });
ok(wait_for(sub { $t->control($slow)->{open_connections} > 1 }),
   'an engine that does not answer is probed');
ok($t->stop('QUIT'), 'quits with an answer outstanding');
delete $t->{master};

# --- configuration

$t->expect_log(qr/\[emerg\]/);

for my $case (
    [ 'kvroute_probe interval=0;', 'invalid value in parameter "interval=0"' ],
    [ 'kvroute_engine x;', 'unknown engine "x"' ],
    [ 'kvroute_probe url=:;', 'invalid value in parameter "url=:"' ],
    [ 'kvroute_probe url=:70000/x;', 'invalid value in parameter "url=:70000/x"' ],
    [ 'kvroute_probe fails=1;', 'invalid parameter "fails=1"' ],
    [ 'kvroute_probe url=;', 'invalid value in parameter "url="' ],
    [ 'kvroute_health uri=;', 'invalid value in parameter "uri="' ],
    [ 'kvroute_health fails=0;', 'value of parameter "fails=0"' ],
    [ 'kvroute_health vllm;', 'invalid parameter "vllm"' ],
    [ 'kvroute_probe; kvroute_probe;', '"kvroute_probe" directive is dupl' ])
{
    $t->upstream('all', 'E0', $case->[0]);
    $t->conf($conf);
    my ($ok, $out) = $t->check();
    ok(!$ok && index($out, $case->[1]) >= 0, $case->[0]) or diag($out);
}

$t->done();
