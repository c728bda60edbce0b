#!/usr/bin/perl

# The capacity of a server's cache and its source: a configured value has
# priority over reports.  A report counts while it is repeated and possible.

use lib 't/lib';
use JSON::PP;
use Time::HiRes qw(time);
use Kvroute;

my $t = Kvroute->new();

# an engine of 2,048 blocks of 16 tokens, 131,072 bytes of text

my ($engine) = $t->engines(1, '--hardware', 'none', '--model', 'm',
                           '--kv-cache-size', 2048, '--block-size', 16,
                           '--enable-prompt-tokens-details');

# and an engine whose metrics are written here: one of several values each time

sub report {
    my ($value) = @_;

    Kvroute::write_file("$t->{dir}/report.new", $value);
    rename "$t->{dir}/report.new", "$t->{dir}/report";
}

report(2048);

$t->serve('L', sub {
    my ($c) = @_;
    my $data = '';

    Kvroute::Servers::backend_read($c, \$data) or return;

    my @value = split ' ', Kvroute::slurp("$t->{dir}/report");
    my $now = $value[int(1e5 * time()) % @value];

    my $body = "vllm:num_requests_running{engine=\"0\"} 0.0\n"
               . "vllm:num_requests_waiting{engine=\"0\"} 0.0\n";
    $body .= "vllm:cache_config_info{block_size=\"16\",engine=\"0\","
             . "num_gpu_blocks=\"$now\"} 1.0\n" if $now ne '-';

    syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: " . length($body)
                 . "\r\nConnection: close\r\n\r\n$body");
});

my $conf = <<'EOC';
    kvroute_zone zone=z:2m;
    kvroute_zone zone=y:2m;

    upstream u {
        zone u 64k;
        kvroute kv_cache zone=z capacity=1m;
        server 127.0.0.1:%%E0%%;
        kvroute_probe interval=20ms timeout=1s;
    }
    upstream f {
        zone f 64k;
        kvroute kv_cache zone=y capacity=400k!;
        server 127.0.0.1:%%E0%%;
        kvroute_probe interval=20ms timeout=1s;
    }
    upstream l {
        zone l 64k;
        kvroute kv_cache zone=z capacity=1m;
        server 127.0.0.1:%%L%%;
        kvroute_probe interval=20ms timeout=1s url=/metrics;
    }

    location / { proxy_pass http://u; }
    location /api/ { kvroute_api write=on; }
EOC

$t->conf($conf)->run();

sub peer { return $t->peer($_[0], $t->{vars}{$_[0] eq 'l' ? 'L' : 'E0'}) }

sub now { return join ' ', @{peer($_[0])}{qw(capacity_source capacity_bytes)} }

# waits for a value, and for five more probes after it

sub becomes {
    my ($u, $what, $name) = @_;

    ok(wait_for(sub { now($u) eq $what }), $name)
        or diag(now($u), " and not $what");
    stays($u, $what, "$name: and stays");
}

sub stays {
    my ($u, $what, $name) = @_;

    my $n = peer($u)->{engine}{probes};
    wait_for(sub { peer($u)->{engine}{probes} > $n + 5 });
    is(now($u), $what, $name);
}

sub set {
    my ($u, $size) = @_;

    my $port = $t->{vars}{$u eq 'l' ? 'L' : 'E0'};
    my $r = $t->request("POST /api/capacity?peer=127.0.0.1:$port&size=$size",
                        '');
    is($r->{status}, 200, "set to $size");

    return decode_json($r->{body})->{zones}{z}{"127.0.0.1:$port"};
}

# --- a value set by the API outlasts probes and reloads, until it is removed

becomes('u', 'reported 131072', 'the engine\'s report');
becomes('f', 'configured 409600', 'it does not count with "!"');

is(set('u', '400k')->{capacity_source}, 'api', 'the API shows the source');
stays('u', 'api 409600', 'set by the API');
stays('f', 'api 409600', 'above the configuration');

$t->reload();
stays('u', 'api 409600', 'kept over a reload');

$t->post('/v1/chat/completions', chat(text(3000, $_ % 4), max_tokens => 1))
    for 1 .. 40;
stays('u', 'api 409600', 'whatever replies report');

set('u', 'auto');
ok(wait_for(sub { now('u') eq 'reported 131072' }), 'removed');
stays('f', 'configured 409600', 'with "!" the configuration counts again');

# --- "!" is removed and added by reloads

$t->conf($conf =~ s/400k!/400k/r)->reload();
becomes('f', 'reported 131072', 'without "!"');
$t->conf($conf =~ s/400k!/300k!/r)->reload();
becomes('f', 'configured 307200', 'with "!" and another size');
$t->conf($conf)->reload();
becomes('f', 'configured 409600', 'as before');

# --- a possible report, an impossible one, a changing one, and none

becomes('l', 'reported 131072', 'a report');

report('16000000000');
stays('l', 'reported 131072', 'a higher one: not at once');
ok(wait_for(sub { now('l') eq 'reported 1048576' }),
   'then up to the bytes sent to it');

report('1024');
becomes('l', 'reported 65536', 'a lower one: at once');

report('1024 9999999');
stays('l', 'reported 65536', 'both in turn: the lower one') for 1 .. 10;

report('1024');
stays('l', 'reported 65536', 'the lower one');

for my $bad (qw(NaN 0 -5 1000000000000000000 +Inf -)) {
    report($bad);
    ok(wait_for(sub { now('l') eq 'assumed 1048576' }),
       "$bad is no report: the old one expires") or diag(now('l'));

    report('1024');
    becomes('l', 'reported 65536', 'a report again');
}

# --- without probes a report counts for a minute, and a set value stays

set('l', '64k');
$t->conf($conf =~ s/kvroute_probe[^\n]*//gr)->reload();
is(now('l'), 'api 65536', 'without probes');

$t->done();
