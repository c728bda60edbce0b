#!/usr/bin/perl

# connector=header before llm-d's sidecar: it makes both legs, with the prefill
# server in our header.  Its engines are those of SIMULATOR (llm-d-inference-sim),
# or emulated ones, which check whose each descriptor is.  make test-llmd builds the
# sidecar and runs this.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";
use Kvroute;

plan(skip_all => 'no SIDECAR: make test-llmd builds it') if !$ENV{SIDECAR};

my $t = Kvroute->new();

my (%port, %pulls);

if ($ENV{SIMULATOR}) {
    local $ENV{POD_IP} = '127.0.0.1';

    for my $name (qw(P0 P1 D)) {
        $port{$name} = $t->port();
        $t->spawn("$t->{dir}/$name.log", $ENV{SIMULATOR}, '--port', $port{$name},
                  '--model', 'm', '--force-dummy-tokenizer', '--mode', 'echo');
    }

} else {
    @port{qw(P0 P1 D)} = $t->engines(3, '--model', 'm', '--hardware', 'none');
}

$port{S} = $t->port();
$t->spawn("$t->{dir}/sidecar.log", $ENV{SIDECAR}, '--port', $port{S},
          '--vllm-port', $port{D}, '--secure-proxy=false',
          '--connector', 'nixlv2');

$t->{vars}{$_} = $port{$_} for keys %port;

$t->conf(<<'EOF');
http {
%%TEMP%%
    log_format kv '$status $kvroute_disaggregated [$kvroute_leg1_peer]';
    access_log %%DIR%%/access.log kv;

    kvroute_zone zone=z:4m;

    upstream prefill {
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%P0%%;
        server 127.0.0.1:%%P1%%;
    }
    upstream decode { kvroute kv_cache zone=z; server 127.0.0.1:%%S%%; }

    server {
        listen 127.0.0.1:%%PORT%%;

        location / {
            kvroute_prefill prefill connector=header min=2k!;
            proxy_set_header x-prefiller-host-port $kvroute_leg1_peer;
            proxy_pass http://decode;
            proxy_buffering off;
        }
    }
}
EOF

$t->run();

for my $name (sort keys %port) {
    ok(wait_for(sub { $t->get('/v1/models', port => $port{$name})->{status}
                      == 200 }), "$name is up");
}

# requests that a simulated engine has answered

sub answered {
    my ($name) = @_;

    my $n = 0;
    my $text = $t->get('/metrics', port => $port{$name})->{body};

    $n += $1 while $text =~ /^vllm:request_success_total\{.*\} (\d+)/mg;
    return $n;
}

my (%before, $logged);

sub begin {
    %before = map { $_ => answered($_) } qw(P0 P1 D);
    $logged = () = $t->access_log() =~ /\n/g;
}

# the log line, and that the named servers have answered

sub ends {
    my ($line) = @_;

    my @lines;

    wait_for(sub { @lines = split /\n/, $t->access_log(); @lines > $logged });
    like($lines[-1], qr/^$line/, 'logged');

    my ($peer) = $lines[-1] =~ /:(\d+)\]$/;
    my %is = (P0 => 0, P1 => 0, D => 1);

    $is{$_} = 1 for grep { $port{$_} == ($peer // 0) } qw(P0 P1);

    for my $name (sort keys %is) {
        ok(wait_for(sub { answered($name) - $before{$name} == $is{$name} }),
           "$name has answered $is{$name}");
    }
}

# descriptors that the emulated decode server has used, and the wrong ones

sub pulls {
    return '' if $ENV{SIMULATOR};

    my %at = map {
        $_ => Kvroute::decode($t->get('/control', port => $port{$_})->{body})
    } qw(P0 P1 D);

    return "$at{D}{pulls} " . join '', map { $_->{corrupt} } values %at;
}

my $i = 0;

for my $path (qw(/v1/chat/completions /v1/completions)) {
    for my $stream (0, 1) {
        begin();

        my $text = text(4000, ++$i);
        my $prompt = $path =~ /chat/
            ? "\"messages\":[{\"role\":\"user\",\"content\":\"$text\"}]"
            : "\"prompt\":\"$text\"";
        my $r = $t->post($path, '{"model":"m",' . $prompt . ',"max_tokens":20'
                         . ($stream ? ',"stream":true}' : '}'));

        is($r->{status}, 200, "$path, stream $stream");
        like($r->{body}, $stream ? qr/data: \[DONE\]/ : qr/"usage"/, 'whole');
        ends('200 yes \[127');
        is(pulls(), $ENV{SIMULATOR} ? '' : "$i 000", 'with its descriptor, once');
    }
}

begin();
is($t->post('/v1/completions', '{"model":"m","prompt":"hi","max_tokens":2}',
            headers => { 'X-Prefiller-Host-Port' => "127.0.0.1:$port{P0}" })
   ->{status}, 200, 'a short prompt, and a client that names a server');
ends('200 short \[-\]');

$t->done();
