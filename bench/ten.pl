#!/usr/bin/perl

# make bench-ten: the same ten requests under each policy, on three servers
# that were idle; who got which and why.  This is the picture in
# docs/policies.md.  Writes build/bench/ten.json.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../t/lib";
use JSON::PP;
use Kvroute;

my @policies = qw(round_robin random least_request sticky kv_cache);

my $system = 'You are a coding agent. ' . text(400, 1);

# session, its turn, what else; a turn has all turns before it

my @requests = (
    [ 'a', 1, 'a session begins' ],
    [ 'b', 1, 'another one' ],
    [ 'a', 2, 'its second turn' ],
    [ '',  1, 'no session, another prompt', 'one' ],
    [ 'b', 2, '' ],
    [ 'a', 3, 'stays in flight from now on' ],
    [ 'c', 1, 'a third session' ],
    [ 'f', 3, 'the prompt of request 6, from another client', 'a' ],
    [ 'b', 3, '' ],
    [ 'a', 4, 'while request 6 still runs' ],
);

my $t = Kvroute->new();
my %letter = (B0 => 'A', B1 => 'B', B2 => 'C');
my @rows;

$t->backend($_) for sort keys %letter;

$t->{vars}{SERVERS} = join ' ', map { "server 127.0.0.1:$t->{vars}{$_};" }
                      sort keys %letter;

my $conf = <<'CONF';
http {
%%TEMP%%
    %%LOG%%
CONF

for my $p (@policies) {
    $conf .= <<"CONF";
    kvroute_zone zone=z_$p:2m;
    upstream $p {
        zone $p 64k;
        kvroute $p zone=z_$p;
        %%SERVERS%%
    }
CONF
}

$conf .= <<'CONF';
    client_body_buffer_size 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";

    server {
        listen 127.0.0.1:%%PORT%%;
        location /kvroute/ { kvroute_status; }
CONF

$conf .= "        location /$_/ { proxy_pass http://$_; }\n" for @policies;

$t->conf("$conf    }\n}\n");
$t->run();

sub body {
    my ($name, $turns) = @_;
    my @m = ({ role => 'system', content => $system });

    for my $i (1 .. $turns) {
        push @m, { role => 'assistant', content => 'done' } if $i > 1;
        push @m, { role => 'user', content => $i == 1
                   ? text(6000, 100 + ord $name)
                   : text(900, 200 * $i + ord $name) };
    }

    return chat(\@m);
}

for my $p (@policies) {
    my ($n, $open) = (0);

    for my $q (@requests) {
        my ($session, $turn, undef, $prompt) = @$q;
        my @h = $session ? ('X-Session-Id' => $session) : ();
        my $body = body($prompt || $session, $turn);

        if (++$n == 6) {
            $open = $t->start("POST /$p/?n=$p$n", $body, headers => { @h,
                map { ("X-$_" => "wait go$p") } keys %letter });
            wait_for(sub { ($t->load())[0] == 1 });

        } else {
            $t->post("/$p/?n=$p$n", $body, headers => { @h });
        }
    }

    $t->step("go$p");
    $t->finish($open);
    $t->idle();

    for my $i (1 .. @requests) {
        my $r = $t->receipt("$p$i");

        push @rows, { policy => $p, request => $i, reason => $r->{reason},
                      peer => $letter{$r->{name}}, prompt => $r->{prompt},
                      matched => $r->{matched} };
    }
}

printf "%-14s %s\n", 'policy', join ' ', map { sprintf '%-10d', $_ } 1 .. 10;

for my $p (@policies) {
    printf "%-14s %s\n", $p, join ' ', map {
        sprintf '%-10s', "$_->{peer} $_->{reason}" }
        grep { $_->{policy} eq $p } @rows;
}

my $build = $ENV{BUILD} || "$FindBin::Bin/../build";

mkdir "$build/bench";
Kvroute::write_file("$build/bench/ten.json", JSON::PP->new->canonical->pretty
                    ->encode({ requests => [ map { {
                        session => $_->[0], turn => $_->[1], what => $_->[2]
                    } } @requests ], rows => \@rows }));
