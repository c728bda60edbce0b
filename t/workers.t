#!/usr/bin/perl

# A decision does not depend on which worker takes it: 100 sessions of 20
# requests, interleaved, each over its own connection and so to any of 4
# workers; each session stays at one of 4 peers.
#
# The same requests go to 4 nginxes of one worker each, which share the port but
# not the zone, as a router whose processes do not share their state: there the
# sessions must not stay, or the test proves nothing.  To see the test fail:
#
#     KVROUTE_PRIVATE=1 prove -It/lib t/workers.t

use lib 't/lib';
use Kvroute;

# KVROUTE_WORKERS does not apply here

plan(skip_all => 'with 4 workers only') if ($ENV{KVROUTE_WORKERS} // 4) == 1;

my ($sessions, $turns) = (100, 20);

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 3;

my @fleet;

# 4 workers with one zone, or 4 masters of one worker and one zone each

sub start {
    my ($private) = @_;

    my @new = $private ? map { Kvroute->new(workers => 1) } 1 .. 4
                       : Kvroute->new(workers => 4);

    for my $n (@new) {
        $n->{vars}{$_} = $t->{vars}{$_} for qw(B0 B1 B2 B3);
        $n->{vars}{PORT} = $new[0]{vars}{PORT};
        $n->{vars}{SERVERS} = join ' ', map {
            "server 127.0.0.1:$t->{vars}{$_};" } qw(B0 B1 B2 B3);

        $n->conf(<<'EOF');
http {
%%TEMP%%
    log_format pid '$pid';
    access_log %%DIR%%/access.log pid;
    kvroute_zone zone=z:8m;

    upstream kv { zone kv 64k; kvroute kv_cache zone=z; %%SERVERS%% }
    upstream sticky { zone s 64k; kvroute sticky zone=z; %%SERVERS%% }

    client_body_buffer_size 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";

    server {
        # the kernel gives each worker its share of the connections

        listen 127.0.0.1:%%PORT%% reuseport;

        location /kv/ { proxy_pass http://kv; }
        location /sticky/ { proxy_pass http://sticky; }
        location /kvroute/ { kvroute_status; }
    }
}
EOF
        $n->run();
    }

    return @new;
}


sub message { return "{\"role\":\"$_[0]\",\"content\":\"$_[1]\"}" }

# sends all sessions; returns how many stayed, and how many each peer got

sub play {
    my ($policy, @fleet) = @_;

    my $system = text(400, 1);
    my (@talk, %peers, %owned);

    for my $s (0 .. $sessions - 1) {
        $talk[$s] = message('system', $system) . ','
                    . message('user', text(4000, 100 + $s));
    }

    my $x = 1;

    for my $turn (1 .. $turns) {

        # in another order each time

        my @order = sort { $a->[0] <=> $b->[0] } map {
            $x = ($x * 1103515245 + 12345) % 2147483648;
            [ $x, $_ ] } 0 .. $sessions - 1;

        for my $s (map { $_->[1] } @order) {
            my $to = $fleet[0]->to("/$policy/",
                                   "{\"messages\":[$talk[$s]]}",
                                   'X-Session-Id' => "session $s");

            $peers{$s}{$to}++;
            $owned{$to}++ if $turn == 1;

            $talk[$s] .= ',' . message('assistant', "answer $turn")
                         . ',' . message('user', "$turn " . text(150, $s));
        }
    }

    my $stayed = grep { keys %$_ == 1 } values %peers;

    return ($stayed, map { $owned{"B$_"} // 0 } 0 .. 3);
}


# how many processes served requests

sub workers {
    my %pid;
    $pid{$_}++ for map { split /\n/, $_->access_log() } @_;

    return grep { $_ > $sessions * $turns / 10 } values %pid;
}


my $private = $ENV{KVROUTE_PRIVATE};

@fleet = start($private);

for my $policy (qw(kv sticky)) {
    my ($stayed, @owned) = play($policy, @fleet);

    is($stayed, $sessions, "$policy: each session stays at one peer");
    cmp_ok($owned[$_], '>=', 0.15 * $sessions,
           "$policy: B$_ has its share of them") for 0 .. 3;
}

is(scalar(workers(@fleet)), 4, '4 workers served requests');

# with separate zones

if (!$private) {
    my @apart = start(1);

    $turns = 8;

    for my $policy (qw(kv sticky)) {
        my ($stayed) = play($policy, @apart);

        cmp_ok($stayed, '<', 0.5 * $sessions,
               "$policy: with a zone for each worker sessions do not stay");
    }

    is(scalar(workers(@apart)), 4, '4 separate workers served requests');
    push @fleet, @apart;
}

for my $n (@fleet) {
    ok($n->stop(), 'nginx exits');
    is(join("\n", grep { /\[(?:alert|crit|emerg)\]|Sanitizer|runtime error:/ }
                  split /\n/, $n->log()), '', 'no alert in its log');
}

done_testing();
