#!/usr/bin/perl

# port=auto: nginx asks engines for their publishers; wrong answers, answers
# with other hosts; ranks.

use lib 't/lib';
use JSON::PP;
use Kvroute;

my $t = Kvroute->new(workers => 2);

my @args = ('--hardware', 'none', '--model', 'm', '--kv-cache-size', 4096, '--block-size', 16);
my ($zmq, $replay) = $t->ports(2);
my ($engine) = $t->engines(1, @args, '--kv-events', $zmq, '--kv-replay', $replay);

# two ranks behind one address, each with a publisher

my ($rank_zmq) = $t->ports(2);
my ($ranks) = $t->engines(1, @args, '--data-parallel', 2, '--kv-events', $rank_zmq);

# Answers in vLLM's format after 0.32, and wrong ones.  A file can replace an answer, so
# that publishers move.

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
    status => '', silent => '',

    escaped => qq( {"0" : {"replay_endpoint": null,\n "endpoint":"tcp:\\/\\/[::]:$zmq"}}\n),
    order => qq([{"endpoint":"tcp://:::$zmq","data_parallel_rank":0}]),
    pair => qq([{"endpoint":"tcp://*:$zmq"},)
           . qq({"replay_endpoint":"tcp://*:1024","endpoint":"tcp://*:$rank_zmq"}]),
    swapped => qq([{"data_parallel_rank":1,"endpoint":"tcp://127.0.0.1:$zmq"},)
               . qq({"data_parallel_rank":0,"endpoint":"tcp://*:$rank_zmq"}]),
    keys => qq({"13":{"endpoint":"tcp://*:$zmq"},"12":{"endpoint":"tcp://*:$rank_zmq"}}),
);

my %found = (escaped => 1, order => 1, pair => 2, swapped => 2, keys => 2);

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

# rejected answers, each at an address of its own: 127.0.1.1 and so on

sub one { return qq({"0":{"publisher":"zmq","endpoint":"$_[0]","replay_endpoint":null}}); }

my @none = ('{}', '[]', ' {"sources" : []} ', '{"detail":"Not Found"}',
            '{"0":{"endpoint":null}}', '[5,"x",null,[]]',
            '{"0":{"replay_endpoint":"tcp://*:5557"}}');

my @elsewhere = map { one($_) } 'tcp://:5557', 'tcp://[]:5557', 'tcp://127.0.1.999:5557',
    'tcp://10.0.0.1:5557', 'tcp://[fd00::7]:5557', 'tcp://' . 'a' x 60 . ':5557';

my @invalid = (
    ' ', 'no', '5557', '"tcp://*:5557"', '<html>', '{', '[', '{"0":{"endpoint":"tcp://*:5557"}',
    '{"0":5', "\x92\xcb\x01", '{0:{}}', '[' x 60_000, '{"0":' x 10_000,
    '[' . join(',', map { qq({"endpoint":"tcp://*:$_"}) } 2000 .. 2099) . ']',
    map({ one($_) } 'ipc:///tmp/x', 'inproc://kv', 'udp://*:5557', 'tcp://*', 'tcp://*:', 'tcp://',
        '', 'tcp://*:0', 'tcp://*:22', 'tcp://*:1023', 'tcp://*:65536', 'tcp://*:4294972853',
        'tcp://*:18446744073709557173', 'tcp://*:55x7', 'tcp://*: 5557', 'tcp://*:+5557',
        'tcp://*:-1', 'tcp://*:5557/x'),
    '[{"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5557"}]',
    '[{"endpoint":"tcp://*:5557","replay_endpoint":"x"}]',
    '{"0":{"endpoint":"tcp://*:5557"},"0":{"endpoint":"tcp://*:5558"}}',
    '{"x":{"endpoint":"tcp://*:5557"}}', '{"64":{"endpoint":"tcp://*:5557"}}',
    map({ qq([{"data_parallel_rank":$_,"endpoint":"tcp://*:5557"}]) } 64, -1, '1e99'),
);

my @answers = (@none, @elsewhere, @invalid);

$t->serve('answers', sub {
    my ($c) = @_;

    my $data = '';

    Kvroute::Servers::backend_read($c, \$data);
    $c->sockhost() =~ /(\d+)$/;
    syswrite($c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n$answers[$1 - 1]");
}, addr => '0.0.0.0');

my %port = (engine => $engine, ranks => $ranks, targets => $ranks,
            map { $_ => $t->{vars}{$_} } keys %answer);
my %more = (targets => 'kvroute_ranks 2;',
            list => 'kvroute_engine "header=X-Key: secret";');

$t->upstream($_, "kvroute kv_cache zone=@{[ $_ eq 'targets' ? 'two' : 'z' ]};",
             'kvroute_events port=auto;', $more{$_} || (),
             "server 127.0.0.1:$port{$_};") for sort keys %port;

my $servers = join '', map { "server 127.0.1.$_:$t->{vars}{answers};\n" } 1 .. @answers;

$t->upstream('answers', 'zone answers 256k;',
             'kvroute kv_cache zone=answers_z;', 'kvroute_events port=auto;',
             $servers);

$t->conf(<<"EOF");
    kvroute_zone zone=z:8m;
    kvroute_zone zone=two:8m;
    kvroute_zone zone=answers_z:8m;

    location /engine/ { proxy_pass http://engine/; }
EOF

$t->run();

sub of { return $t->peer($_[0], $port{$_[0]})->{events}; }

sub ask {
    my ($path, $seed, @arg) = @_;

    return $t->post("$path/v1/chat/completions", chat(text(3000, $seed)), @arg)->{status};
}

# an engine that does not publish yet, see below

my ($new_zmq, $new_replay) = $t->ports(2);
my ($other) = $t->engines(1, @args, '--kv-events', $new_zmq, '--kv-replay', $new_replay);
my $moved = encode_json({ 0 => { endpoint => "tcp://*:$new_zmq",
                                 replay_endpoint => "tcp://*:$new_replay" } });

ok(wait_for(sub { of('none')->{refused} > 0 }), 'none: refused');
is(of('none')->{connects}, 0, 'none: no connection');
Kvroute::write_file("$t->{dir}/none.json", $moved);

# all three formats

for my $name (qw(engine list sources)) {
    ok(wait_for(sub { of($name)->{sources} == 1 }), "$name: its publisher is found");
}

is(ask('/engine', 1), 200, 'a request');

for my $name (qw(engine list sources)) {
    ok(wait_for(sub { of($name)->{tokens} > 0 && of($name)->{trusted} }),
       "$name: and connected");
    is(of($name)->{refused}, 0, "$name: no answer is rejected");
}

like(Kvroute::slurp("$t->{dir}/list.head"),
     qr{^GET /kv_event_sources HTTP/1.*^X-Key: secret\r?$}ms,
     'the request has the headers of health checks');

# lost messages come from the replay that was found

$t->control($engine, { kv_lose => 2 });
ask('/engine', $_) for 2 .. 4;
ok(wait_for(sub { of('engine')->{replayed} >= 2 }), 'the replay is found, too');
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
       "rank $rank: its blocks are its own");
    is((targets())[1 - $rank]{events}{stored}, $before[1 - $rank],
       'and not the other one\'s');
}

ok(wait_for(sub { of('ranks')->{stored} == $t->control($ranks)->{kv_events}{stored} }),
   'as one server it has the blocks of both');

# an answer with another host is not used; all are counted and logged

for my $name (qw(foreign named low many text long half status)) {
    ok(wait_for(sub { of($name)->{refused} > 0 }), "$name: refused");
    is(of($name)->{connects}, 0, "$name: no connection");
}

is(of('silent')->{refused}, 0, 'no answer: nothing is rejected');

for ([ foreign => "endpoint names a different host" ],
     [ many => 'has more than 8 ranks' ], [ none => 'has no publisher' ],
     [ low => 'must have a TCP endpoint with a port' ], [ status => 'was not 200' ],
     [ long => 'was too long' ])
{
    my ($name, $why) = @$_;

    like($t->log(), qr/KV events of server 127\.0\.0\.1:$port{$name} not found: .*$why/,
         "$name: the reason is logged");
}

unlike($t->log(), qr/127\.0\.0\.9|localhost/, 'without the engine\'s text');

sub answered {
    return $t->status()->{upstreams}{answers}{peers}[$_[0] - 1]{events};
}

for my $name (sort keys %found) {
    ok(wait_for(sub { of($name)->{sources} == $found{$name} }), "$name: found");
    is(of($name)->{refused}, 0, "$name: no answer is rejected");
}

for my $n (1 .. @answers) {
    my $name = substr $answers[$n - 1], 0, 80;
    my $why = $n <= @none ? 'has no publisher'
        : $n <= @none + @elsewhere ? 'names a different host' : 'must have a TCP endpoint';

    ok(wait_for(sub { answered($n)->{refused} > 0 }), "refused: $name");
    is(answered($n)->{connects}, 0, 'no connection');
    like($t->log(), qr/KV events of server 127\.0\.1\.$n:\d+ not found: [^\n]*$why/, 'the log says why');
}

# publishers that start late, and move to other ports

my $flushes = sub { $t->peer($_[0], $port{$_[0]})->{cache}{flushes_event} };
my $before = $flushes->('list');

Kvroute::write_file("$t->{dir}/list.json", $moved);

ok(wait_for(sub { of('none')->{sources} == 1 }), 'a publisher that starts late');

$t->control($engine, { kv_mute => JSON::PP::true });
ok(wait_for(sub { $flushes->('list') == $before + 1 }), 'a new one, at other ports');
ask('', 20, port => $other);
ok(wait_for(sub { of('list')->{sources} == 1
                  && of('list')->{trusted}
                  && $t->control($other)->{kv_events}{subscribers} == 2 }),
   'is connected');

# a reload finds all of them again, and flushes nothing

$before = $flushes->('list');
$t->control($engine, { kv_mute => JSON::PP::false });
$t->reload();
ok(wait_for(sub { ask('/engine', 30) == 200 && of('engine')->{sources} == 1
                  && of('list')->{sources} == 1 && of('ranks')->{sources} == 2 }),
   'after a reload all are found');
is($flushes->('list'), $before, 'and nothing is flushed');

$t->done();
