#!/usr/bin/perl

# max_conns=fleet: the limit of a server, or of all its entries, applies to the
# requests of all hosts together.

use lib 't/lib';
use Kvroute;
use Kvroute::Store;

use MIME::Base64;

my ($one, $two) = map { Kvroute->new() } 1 .. 2;

my $store = Kvroute::Store->new($one)
    or plan(skip_all => 'no Redis and no Valkey');

my $key = encode_base64(join('', map { chr int rand 256 } 1 .. 192), '');

$one->backend($_) for qw(B0 B1);

# hosts' reports hold for a minute, so that slow machines pass

for my $h ($one, $two) {
    $h->{vars}{$_} = $one->{vars}{$_} for qw(B0 B1);
    $h->{vars}{STORE} = $store->{port};

    Kvroute::write_file("$h->{dir}/key", $key);
    chmod 0600, "$h->{dir}/key";

    $h->conf(<<'EOF')->run();
    kvroute_zone zone=z:4m key_file=%%DIR%%/key;
    kvroute_share zone=z server=redis://127.0.0.1:%%STORE%%
                  max_conns=fleet;

    upstream once {
        zone once 64k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%B0%% max_fails=0 max_conns=3;
    }
    upstream twice {
        zone twice 64k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%B1%% max_fails=0 max_conns=1;
        server 127.0.0.1:%%B1%% max_fails=0 max_conns=2;
    }

    location /once/ { proxy_pass http://once; }
    location /twice/ { proxy_pass http://twice; }
    location /early/ { proxy_pass http://twice; }
EOF
}

my $n = 0;

# a request that waits at its server for a signal

sub hold {
    my ($h, $at) = @_;

    $n++;

    my $s = $h->start("POST $at/v1/chat/completions", chat("p$n"),
                      headers => { map { $_ => "wait go$n" } qw(X-B0 X-B1) });

    return [ $h, $s, "go$n" ];
}

sub go {
    my ($h, $s, $file) = @{$_[0]};

    $one->step($file);

    return $h->finish($s)->{status};
}

sub ask {
    my ($h, $at) = @_;

    $n++;

    return $h->post("$at/v1/chat/completions", chat("p$n"))->{status};
}

# requests at a host's server, and the other host's

sub counted {
    my ($h, $at, $own, $elsewhere) = @_;

    return wait_for(sub {
        my ($p) = @{$h->status()->{upstreams}{$at =~ s{^/}{}r}{peers}};

        return $p->{active} == $own && $p->{elsewhere} == $elsewhere;
    });
}

for my $at (qw(/once /twice)) {
    my @held = map { hold($one, $at) } 1, 2;

    ok(counted($two, $at, 0, 2), "$at: two from another host");

    push @held, hold($two, $at);

    ok(counted($two, $at, 1, 2), "$at: a third one from here");
    ok(counted($one, $at, 2, 1), "$at: the other host knows it");

    is(ask($_, $at), 502, "$at: full") for $one, $two;
    is(ask($two, '/early'), 502, "$at: an early decision, too") if $at eq '/twice';

    is(go(shift @held), 200, "$at: served");
    ok(counted($two, $at, 1, 1), "$at: a place is free");
    is(ask($two, $at), 200, "$at: and used");

    is(go($_), 200, "$at: served") for @held;
    ok(counted($_, $at, 0, 0), "$at: no request is left") for $one, $two;
}

$two->quit();
$one->done();
