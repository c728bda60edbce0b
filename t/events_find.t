#!/usr/bin/perl

# Publishers of KV events that are found by asking engines for them (port=auto);
# answers that are wrong, or that want us to go elsewhere; ranks.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use JSON::PP;
use Kvroute;

my $t = Kvroute->new(workers => 2);

my @args = ('--hardware', 'none', '--model', 'm', '--kv-cache-size', 4096, '--block-size', 16);
my ($zmq, $replay) = $t->ports(2);
my ($engine) = $t->engines(1, @args, '--kv-events', $zmq, '--kv-replay', $replay);

# two ranks behind one address, each with a publisher

my ($rank_zmq) = $t->ports(2);
my ($ranks) = $t->engines(1, @args, '--data-parallel', 2, '--kv-events', $rank_zmq);

# Answers of others: as vLLM has written them after 0.32, and wrong ones.  What a file says
# is told instead, so that publishers move.

my %answer = (
    list => [ { data_parallel_rank => 0, endpoint => "tcp://127.0.0.1:$zmq",
                replay_endpoint => "tcp://0.0.0.0:$replay", topic => 'kv' } ],
    sources => { sources => [ { data_parallel_rank => 3, endpoint => "tcp://*:$zmq",
                                replay_endpoint => undef, topic => '' } ] },
    foreign => [ { data_parallel_rank => 0, endpoint => "tcp://127.0.0.9:$zmq" } ],
    named => [ { data_parallel_rank => 0, endpoint => "tcp://localhost:$zmq" } ],
    low => [ { data_parallel_rank => 0, endpoint => 'tcp://*:22' } ],
    none => {},
    many => [ map { { endpoint => 'tcp://*:' . (2000 + $_) } } 1 .. 9 ],
    text => 'tcp://*:5557',
    long => ' ' x 100_000,
    half => '[{"endpoint":"tcp://*:5557"',
    status => '', silent => ''
);

for my $name (keys %answer) {
    my $body = ref $answer{$name} ? encode_json($answer{$name}) : $answer{$name};

    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';
        my $head = Kvroute::Servers::backend_read($c, \$data);

        Kvroute::write_file("$t->{dir}/$name.head", $head);
        return sysread($c, $data, 1) if $name eq 'silent';

        $body = Kvroute::slurp("$t->{dir}/$name.json") if -e "$t->{dir}/$name.json";

        syswrite($c, ($name eq 'status' ? 'HTTP/1.1 404 X' : 'HTTP/1.1 200 OK')
                     . "\r\nConnection: close\r\n\r\n$body");
    });
}

my %port = (engine => $engine, ranks => $ranks, targets => $ranks,
            map { $_ => $t->{vars}{$_} } keys %answer);
my %more = (targets => 'kvroute_ranks 2;',
            list => 'kvroute_health uri=/kv_event_sources "header=X-Key: secret";');

my $upstreams = join '', map { <<"EOF" } sort keys %port;
    upstream $_ {
        zone $_ 64k;
        kvroute kv_cache zone=@{[ $_ eq 'targets' ? 'two' : 'z' ]};
        kvroute_events port=auto;
        @{[ $more{$_} || '' ]}
        server 127.0.0.1:$port{$_};
    }
EOF

$t->conf(<<"EOF");
http {
%%TEMP%%
    access_log off;
    kvroute_zone zone=z:8m;
    kvroute_zone zone=two:8m;
$upstreams
    server {
        listen 127.0.0.1:%%PORT%%;
        location /engine/ { proxy_pass http://engine/; }
        location /kvroute/ { kvroute_status; }
    }
}
EOF

$t->run();

sub of { return $t->peer($_[0], $port{$_[0]})->{events}; }

sub ask {
    my ($path, $seed, @arg) = @_;

    return $t->post("$path/v1/chat/completions", chat(text(3000, $seed)), @arg)->{status};
}

# one that publishes nothing yet, of which more below

my ($new_zmq, $new_replay) = $t->ports(2);
my ($other) = $t->engines(1, @args, '--kv-events', $new_zmq, '--kv-replay', $new_replay);
my $moved = encode_json({ 0 => { endpoint => "tcp://*:$new_zmq",
                                 replay_endpoint => "tcp://*:$new_replay" } });

ok(wait_for(sub { of('none')->{refused} > 0 }), 'none: refused');
is(of('none')->{connects}, 0, 'none: nobody is connected to');
Kvroute::write_file("$t->{dir}/none.json", $moved);

# all three ways to tell it

for my $name (qw(engine list sources)) {
    ok(wait_for(sub { of($name)->{sources} == 1 }), "$name: it is found");
}

is(ask('/engine', 1), 200, 'a request');

for my $name (qw(engine list sources)) {
    ok(wait_for(sub { of($name)->{tokens} > 0 && of($name)->{trusted} }),
       "$name: and listened to");
    is(of($name)->{refused}, 0, "$name: nothing is wrong");
}

like(Kvroute::slurp("$t->{dir}/list.head"),
     qr{^GET /kv_event_sources HTTP/1.*^X-Key: secret\r?$}ms,
     'an engine is asked as for its health');

# what was lost is in the replay that was found

$t->control($engine, { kv_lose => 2 });
ask('/engine', $_) for 2 .. 4;
ok(wait_for(sub { of('engine')->{replayed} >= 2 }), 'a replay is found too');
is(of('engine')->{lost}, 0, 'nothing is lost');

# ranks: as one server, and each as a target of its own

ok(wait_for(sub { of('ranks')->{sources} == 2 }), 'both ranks are found');

sub targets {
    return @{$t->status()->{upstreams}{targets}{peers}};
}

ok(wait_for(sub { 2 == grep { $_->{events}{sources} == 1 } targets() }),
   'each target has its publisher');

for my $rank (0, 1) {
    my @before = map { $_->{events}{stored} } targets();

    ask('', 10 + $rank, port => $ranks, headers => { 'X-Data-Parallel-Rank' => $rank });

    ok(wait_for(sub { (targets())[$rank]{events}{stored} > $before[$rank] }),
       "rank $rank: what it has stored is its own");
    is((targets())[1 - $rank]{events}{stored}, $before[1 - $rank], 'and not that of the other');
}

ok(wait_for(sub { of('ranks')->{stored} == $t->control($ranks)->{kv_events}{stored} }),
   'as one server it is all of it');

# one that is asked to go elsewhere does not go; all of it is counted and told

for my $name (qw(foreign named low many text long half status)) {
    ok(wait_for(sub { of($name)->{refused} > 0 }), "$name: refused");
    is(of($name)->{connects}, 0, "$name: nobody is connected to");
}

is(of('silent')->{refused}, 0, 'one that does not answer has told nothing');

for ([ foreign => 'it names another host than its own' ],
     [ many => 'it has more than 8 ranks' ], [ none => 'it publishes none' ],
     [ low => 'none of TCP, with a port from 1024' ], [ status => 'was not 200' ],
     [ long => 'was too long' ])
{
    my ($name, $why) = @$_;

    like($t->log(), qr/events of 127\.0\.0\.1:$port{$name} are not found: .*$why/,
         "$name: said why");
}

unlike($t->log(), qr/127\.0\.0\.9|localhost/, 'and not in the words of the engine');

# publishers that come, and go to other ports

my $flushes = sub { $t->peer($_[0], $port{$_[0]})->{cache}{flushes_event} };
my $before = $flushes->('list');

Kvroute::write_file("$t->{dir}/list.json", $moved);

ok(wait_for(sub { of('none')->{sources} == 1 }), 'one that publishes at last');

$t->control($engine, { kv_mute => JSON::PP::true });
ok(wait_for(sub { $flushes->('list') == $before + 1 }), 'another one, at other ports');
ask('', 20, port => $other);
ok(wait_for(sub { of('list')->{sources} == 1
                  && of('list')->{trusted}
                  && $t->control($other)->{kv_events}{subscribers} == 2 }),
   'is listened to');

# a reload finds them all again, and forgets nothing

$before = $flushes->('list');
$t->control($engine, { kv_mute => JSON::PP::false });
$t->reload();
ok(wait_for(sub { ask('/engine', 30) == 200 && of('engine')->{sources} == 1
                  && of('list')->{sources} == 1 && of('ranks')->{sources} == 2 }),
   'after a reload all are found');
is($flushes->('list'), $before, 'and nothing is forgotten');

$t->done();
