#!/usr/bin/perl

# Routing by signals of engines: adapters, preemptions, probes at another
# address, failing checks of an engine that streams, upgraded connections;
# probes continue after a worker was killed.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();
my $dir = $t->{dir};

# servers that answer as files say; "rising" is another number each time

sub put {
    my ($file, $text) = @_;

    Kvroute::write_file("$dir/$file.new", $text);
    rename "$dir/$file.new", "$dir/$file";
}

sub answer {
    my ($c, $status, $head, $body) = @_;

    syswrite($c, "HTTP/1.1 $status X\r\nContent-Length: " . length($body)
                 . "\r\n$head\r\n$body");
}

# chunked, as uvicorn sends even to HTTP/1.0, and split inside a line

sub answer_chunked {
    my ($c, $body) = @_;

    syswrite($c, "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
                 . join('', map { sprintf "%x\r\n%s\r\n", length, $_ }
                            $body =~ /(.{1,7})/gs)
                 . "0\r\n\r\n");
}

sub engine {
    my ($name, %arg) = @_;

    my $n = 0;

    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';

        while (defined(my $head = Kvroute::Servers::backend_read($c, \$data)))
        {
            my ($path) = $head =~ /^\S+ (\S+)/;

            if ($path eq '/health') {
                return sysread($c, $data, 1) if -e "$dir/$name.hang";

                if (-e "$dir/$name.load") {
                    answer($c, 503, "Retry-After: 1\r\n", 'Loading model');

                } else {
                    answer($c, 200, '', 'ok');
                }

            } elsif ($path eq '/metrics') {
                my $text = Kvroute::slurp("$dir/$name.metrics");
                my $now = int(Time::HiRes::time() * 1000);

                $text =~ s/rising/$now/;

                if ($name eq 'B' && $text ne '') {
                    answer_chunked($c, $text);
                    next;
                }

                answer($c, $text ne '' ? 200 : 404, '', $text);

            } elsif ($path =~ /ws$/) {
                syswrite($c, "HTTP/1.1 101 X\r\nUpgrade: x\r\n"
                             . "Connection: upgrade\r\n\r\nhello");
                sysread($c, $data, 1);
                return;

            } elsif ($path =~ /stream$/) {
                syswrite($c, "HTTP/1.1 200 OK\r\nConnection: close\r\n"
                                 . ($path =~ /zstream/ ? "Content-Encoding: gzip\r\n"
                                                   : '')
                             . "Content-Type: text/event-stream\r\n\r\n");

                until (-e "$dir/stop") {
                    syswrite($c, "data: {}\n\n") or return;
                    select undef, undef, undef, 0.02;
                }

                return;

            } else {
                answer($c, 200, Kvroute::slurp("$dir/$name.head"), '{}');
            }
        }
    }, %arg);
}

my %name = map { (engine($_) => $_) } qw(A B C D);
my $later = $t->port();
$t->{vars}{LATER} = $later;

$t->upstream('cache',
             'server 127.0.0.1:%%A%%; server 127.0.0.1:%%B%%; server 127.0.0.1:%%C%%;',
             'kvroute_probe interval=100ms;');
$t->upstream('port', 'kvroute least_request zone=p;', 'D C',
             'kvroute_probe interval=100ms url=:%%A%%/metrics;');
$t->upstream('addr', 'kvroute least_request zone=l;', 'D C',
             'kvroute_probe interval=50ms url=127.0.0.1:%%LATER%%;');
$t->upstream('busy', 'kvroute least_request zone=h;', 'A',
             'server 127.0.0.1:1 down;',
             'kvroute_health interval=200ms timeout=500ms fails=4;');
$t->upstream('loads', 'kvroute least_request zone=g;', 'A',
             'server 127.0.0.1:1 down;',
             'kvroute_health interval=50ms timeout=5s;');

$t->conf(<<'EOF');
    kvroute_zone zone=z:2m;
    kvroute_zone zone=p:2m;
    kvroute_zone zone=l:2m;
    kvroute_zone zone=g:2m;
    kvroute_zone zone=h:2m;

    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $http_connection;
    proxy_buffering off;

    add_header X-Peer $upstream_addr;
    location = /kvroute/json { kvroute_status json; }
EOF

$t->run();

my $seed = 0;

# the server that gets a request, by default one with a new prompt

sub to {
    my ($up, $body) = @_;

    my $r = $t->post("/$up/v1/chat/completions",
                     $body || chat(text(500, ++$seed)));
    my ($port) = ($r->{headers}{'x-peer'} // '') =~ /(\d+)$/;

    return $r->{status} == 200 ? $name{$port // 0} // '?' : $r->{status};
}

# that requests go there: waits until the signals have arrived, then checks each

sub all_to {
    my ($want, $name, $up, $make) = @_;

    my $got;

    ok(wait_for(sub {
        $got = join '', map { to($up, $make ? $make->() : undef) } 1 .. 6;
        return $got eq $want x 6;
    }), $name) or diag($got);
}

sub spread {
    my ($up) = @_;
    my %n;

    $n{to($up)}++ for 1 .. 12;

    return join '', sort keys %n;
}

my ($pa) = grep { $name{$_} eq 'A' } keys %name;
my ($pd) = grep { $name{$_} eq 'D' } keys %name;

sub said { return $t->peer($_[0], $_[1])->{engine}; }

sub load {
    my ($name, $waiting, $kv, $more) = @_;

    put("$name.metrics", "vllm:num_requests_running 0\n"
        . "vllm:num_requests_waiting $waiting\n"
        . "vllm:kv_cache_usage_perc $kv\n" . ($more // ''));
}

# --- adapters: loaded, a free slot, or another one has to be unloaded

sub adapters { return "vllm:lora_requests_info{max_lora=\"1\",running_lora_adapters=\"$_[0]\","
                      . "waiting_lora_adapters=\"$_[0]\"} 1.7e9\n"; }

load('A', 0, 0.1, adapters('one'));
load('B', 0, 0.1, adapters('two'));
load('C', 0, 0.1, adapters(''));

to('cache', chat('x', model => $_)) for qw(base other);

for my $case ([ 'one', 'A' ], [ 'two', 'B' ]) {
    my ($model, $want) = @$case;

    all_to($want, "adapter $model: where it is loaded", 'cache',
           sub { chat(text(500, ++$seed), model => $model) });
}

ok(wait_for(sub { (said('cache', $pa)->{adapters} // 0) == 1 }),
   'an adapter in both labels counts once');

# --- preemptions: a low cap on requests there; a free slot is better than
# unloading

my $prompt = chat(text(9000, 1000), model => 'one');

all_to('A', 'a cached prompt', 'cache', sub { $prompt });

load('A', 0, 0.1, adapters('one') . "vllm:num_preemptions_total rising\n");
ok(wait_for(sub { (said('cache', $pa)->{cap} || 0) == 1 }),
   'preempted: a cap')
    or diag(JSON::PP->new->encode(said('cache', $pa)));

my $held = $t->start('POST /cache/stream', $prompt);
like($t->read_until($held, qr/data: /), qr/:$pa\r\n/,
     'a request below the cap goes there');
all_to('C', 'over the cap: the engine with a free adapter slot', 'cache',
       sub { chat(text(500, ++$seed), model => 'one') });
close $held;
ok($t->idle(), 'idle');

load('A', 0, 0.1, adapters('one') . "vllm:num_preemptions_total 9e15\n");
ok(wait_for(sub { (said('cache', $pa)->{cap} // 1) == 0 }),
   'no new preemptions: no cap');

# --- probes of another port or address, which may fail independently of the
# engine

load('A', 5, 0.25);
ok(wait_for(sub { (said('port', $pd)->{kv_usage} // 0) == 0.25 }), 'port=');
is(to('port') =~ /^[CD]$/, 1, 'port= is for probes only');

ok(wait_for(sub { said('addr', $pd)->{failed} > 3 }),
   'addr=, nobody listens: probes fail');
engine('L', port => $later);
load('L', 7, 0.75);
ok(wait_for(sub { (said('addr', $pd)->{kv_usage} // 0) == 0.75 }), 'addr=');
is($t->peer('addr', $pd)->{cache}{flushes_probe}, 0,
   'a metrics server gets no requests');

# --- an engine that streams is not down when checks time out

sub checks { return $t->peer($_[0] // 'busy', $pa)->{health_checks}{checks} }
sub health { return $t->peer($_[0] // 'busy', $pa)->{health}; }

ok(wait_for(sub { checks() > 1 }), 'checked');

my ($s, $checks, @seen);

for my $path (qw(stream zstream)) {
    $s = $t->start("POST /busy/$path", chat('x'));
    $t->read_until($s, qr/data: /);
    put('A.hang', '');

    $checks = checks();
    @seen = ();

    ok(wait_for(sub {
        push @seen, health();
        sysread($s, my $data, 65536);
        return checks() > $checks + 6;
    }), "$path: checks time out");
    is(scalar(grep { $_ ne 'up' } @seen), 0,
       "$path: an engine that streams is up");

    unlink "$dir/A.hang";
    close $s if $path eq 'stream';
}

put('A.hang', '');
put('stop', '');
ok(wait_for(sub { health() eq 'down' }), 'an engine that hangs is down');
is(to('busy'), 'A', 'it is tried if all are down');
unlink "$dir/A.hang", "$dir/stop";
ok(wait_for(sub { health() eq 'up' }), 'and up again');
close $s;

# --- an engine that loads may send Retry-After, and is not up for that

put('A.load', '');
ok(wait_for(sub { health('loads') eq 'starting' }), 'an engine that loads is starting');
$checks = checks('loads');
@seen = ();
ok(wait_for(sub { push @seen, health('loads');
                  return checks('loads') > $checks + 4; }),
   'the checks continue');
is(scalar(grep { $_ ne 'starting' } @seen), 0, 'it is never up meanwhile');
unlink "$dir/A.load";
ok(wait_for(sub { health('loads') eq 'up' }), 'an engine that has loaded is up');

# --- an upgraded connection has no first event

$s = $t->start('POST /cache/ws', chat(text(5000, 2000)),
               headers => { Upgrade => 'x', Connection => 'upgrade' },
               keep => 1);
like($t->read_until($s, qr/hello/), qr/^HTTP\S+ 101/, 'upgraded');
is(join(' ', ($t->load())[0, 1, 3]), '1 0 0', 'in use, and no first event is expected');
close $s;
ok($t->idle(), 'idle');

# --- killed workers: new ones continue the probes

for my $pid ($t->active_workers()) {
    $t->kill_worker($pid);
}

my $n = said('cache', $pa)->{probes};
ok(wait_for(sub { my $e = eval { said('cache', $pa) };
                  $e && $e->{probes} > $n + 3 }),
   'probes continue after a worker was killed');

$t->done();
