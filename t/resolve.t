#!/usr/bin/perl

# Servers that are resolved at run time: added, removed and changed under load.

use lib 't/lib';
use Kvroute;
use Kvroute::Dns;
use Time::HiRes qw(sleep);

my $t = Kvroute->new();

plan(skip_all => 'names are resolved at run time since nginx 1.27.3')
    if $t->version() lt '001027003';

# one port at several addresses

my $port = $t->port();

sub at { return map { "127.0.0." . $_ } @_ }

my %name = map { (at($_) => "B$_") } 2 .. 6;

$t->backend($name{$_}, addr => $_, port => $port) for sort keys %name;

# --- DNS: one name, answered from a file

$t->{vars}{DNS} = Kvroute::Dns::serve($t);
$t->{vars}{ENGINES} = $port;

# a backend on all addresses

$t->{vars}{MANY} = $t->backend('M', addr => '0.0.0.0');

# an engine whose KV events nginx reads

my ($zmq) = $t->ports(1);
my ($engine) = $t->engines(1, '--hardware', 'none', '--model', 'm', '--kv-events', $zmq);

Kvroute::Dns::records($t, 'heard', '127.0.0.1');

sub records { Kvroute::Dns::records($t, '', @_) }

sub servers {
    my ($upstream) = @_;
    my $status = $t->status() or return '';

    return join ' ', sort map { $_->{name} =~ s/:.*//r }
                              @{$status->{upstreams}{$upstream || 'u'}{peers}};
}

sub become {
    my (@addrs) = @_;

    records(@addrs);

    return wait_for(sub { servers() eq join ' ', sort @addrs });
}

records('127.0.0.2', '127.0.0.3');

$t->upstream('u', 'zone u 256k;', 'kvroute kv_cache zone=z;',
             'server engines.test:%%ENGINES%% resolve max_fails=0;',
             'keepalive 8;');
$t->upstream('queued', 'zone queued 256k;', 'kvroute kv_cache zone=z;',
             'kvroute_queue max=10 timeout=1h;',
             'server engines.test:%%ENGINES%% resolve max_conns=1 max_fails=0;');
$t->upstream('heard', 'zone heard 256k;', 'kvroute kv_cache zone=y;',
             'kvroute_events port=auto;',
             'server heard.test:%%E0%% resolve max_fails=0;');
$t->upstream('ranked', 'zone ranked 256k;', 'kvroute kv_cache zone=r;',
             'kvroute_ranks 4;',
             'server ranked.test:%%MANY%% resolve max_fails=0;');
$t->upstream('many', 'zone many 256k;', 'kvroute kv_cache zone=y;',
             'server many.test:%%MANY%% resolve max_fails=0;');

$t->conf(<<'EOC')->run();
    kvroute_zone zone=z:2m;
    kvroute_zone zone=y:2m;
    kvroute_zone zone=r:1m max_peers=16;
    add_header X-Receipt "$kvroute_reason $kvroute_matched_bytes";

    resolver 127.0.0.1:%%DNS%% valid=1s ipv6=off;
    resolver_timeout 5s;

    location /many/ {
        proxy_next_upstream error timeout non_idempotent;
        proxy_pass http://many;
    }
    location / {
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_next_upstream error timeout non_idempotent;
        proxy_pass http://u;
    }
    location /queued/ { proxy_pass http://queued; }
    location /ranked/ {
        kvroute_pin $http_x_pin;
        proxy_set_header X-Data-Parallel-Rank $kvroute_rank;
        proxy_pass http://ranked;
    }
EOC

ok(become('127.0.0.2', '127.0.0.3'), 'resolved at start');

# KV events of a name that is removed and returns

sub subscribers { return $t->control($engine)->{kv_events}{subscribers}; }

ok(wait_for(sub { subscribers() == 1 }), 'its events are found and read');
Kvroute::Dns::records($t, 'heard', '127.0.0.9');
ok(wait_for(sub { subscribers() == 0 }), 'not after its name is removed');
is($t->post('/v1/chat/completions', chat(text(3000, 1)), port => $engine)->{status}, 200,
   'events meanwhile');
Kvroute::Dns::records($t, 'heard', '127.0.0.1');
ok(wait_for(sub { subscribers() == 1 }), 'and again when the name returns');
is($t->post('/v1/chat/completions', chat(text(3000, 2)), port => $engine)->{status}, 200,
   'events afterwards');
ok(wait_for(sub { ($t->peer('heard', $engine)->{events} || {})->{trusted} }),
   'events are used');
is($t->peer('heard', $engine)->{events}{restarts}, 0, 'no restart was assumed');

my $body = chat(text(20_000, 1));

sub served { return $t->post('/', $_[0] || $body)->{body} =~ /^(\S+)/ ? $1 : '' }

my $first = served();
is(served(), $first, 'affinity') for 1 .. 3;

# servers keep their state when others are added

ok(become(at(2 .. 4)), 'a server was added');
is(served(), $first, 'affinity survives it');

my %got;
$got{served(chat(text(20_000, $_)))}++ for 2 .. 10;
is(scalar keys %got, 3, 'the new one is used');

# a server is removed while it serves: the request ends well, and nothing leaks

{
    my ($addr) = grep { $name{$_} eq $first } keys %name;
    my $id = $t->peer('u', $port)->{id};
    my @s = map {
        $t->start('POST /', $body, headers => { "X-$first" => 'wait removed' })
    } 1 .. 3;

    wait_for(sub { ($t->load())[0] == 3 });

    ok(become(grep { $_ ne $addr } at(2 .. 4)),
       'a server in use was removed');
    isnt(served(), $first, 'it gets nothing new');

    $t->step('removed');
    like($t->finish($_)->{body}, qr/^$first /, 'its requests end') for @s;
    ok($t->idle(), 'no request is left in the counters');

    ok(become(at(2 .. 4)), 'and it returns');
    like($t->post('/', $body)->{headers}{'x-receipt'},
         qr/^affinity (?!0\b)\d+$/, 'with its cached prompts');
}

# a request between two tries: its list of servers changes, and it continues
# with the new one (nginx's own balancers do not)

for my $case ([ 'POST', chat(text(20_000, 77)) ], [ 'GET', undef ]) {
    my ($method, $data) = @$case;
    my @old = at(2 .. 4);

    ok(become(@old), "$method: servers as before");

    my $s = $t->start("$method /", $data, headers => {
        map { ("X-$name{$_}" => "lose $method") } @old });
    wait_for(sub { ($t->load())[0] == 1 });

    ok(become('127.0.0.5', '127.0.0.6'), "$method: all servers were replaced");
    $t->step($method);

    my $r = $t->finish($s);
    is($r->{status}, 200, "$method: served");
    like($r->{body}, qr/^B[56] /, "$method: by a new one");
    ok($t->idle(), "$method: no request is left in the counters");
}

# a queue whose servers have just changed: no reservation at a removed server

for my $n (1 .. 3) {
    records(at(2, 3));
    wait_for(sub { servers('queued') eq '127.0.0.2 127.0.0.3' });

    my $queued = sub {
        return $t->start("POST /queued/$_[0]", chat(text(1000, 900 + $n)),
                         headers => { map { ("X-B$_" => "wait q$n") } 2, 3 });
    };

    my @s = map { $queued->($_) } 1, 2;
    ok(wait_for(sub { ($t->load())[0] == 2 }), 'queued: both are in use');

    records('127.0.0.2');
    wait_for(sub { servers('queued') eq '127.0.0.2' });

    push @s, $queued->(3);
    ok(wait_for(sub { $t->status()->{upstreams}{queued}{queue}{size} == 1 },
                5), 'queued: the next one waits');

    $t->step("q$n");
    is($t->finish($_)->{status}, 200, 'queued: served') for @s;
    ok($t->idle(), 'queued: no request is left in the counters');
}

# no servers at all, and servers again

{
    ok(become(), 'no servers');
    is($t->post('/', $body)->{status}, 502, 'rejected');
    is($t->get('/')->{status}, 502, 'rejected without a body');
    ok(become('127.0.0.5'), 'one server');
    is($t->post('/', $body)->{status}, 200, 'served');
    is($t->get('/')->{status}, 200, 'served without a body');
}

# under load: every request is served, whatever the list does

{
    records('127.0.0.2', '127.0.0.3');
    wait_for(sub { servers() eq '127.0.0.2 127.0.0.3' });

    my @pids;

    for my $n (1 .. 3) {
        my $pid = fork() // die "fork: $!";

        if ($pid == 0) {
            my %status;

            until (-e "$t->{dir}/enough") {
                my $r = $n == 3 ? $t->get('/x')
                                : $t->post('/', chat(text(8_000, 100 + $n)));
                $status{$r->{status}}++;
            }

            Kvroute::write_file("$t->{dir}/load.$n",
                                join ' ', map { "$_:$status{$_}" } keys %status);
            POSIX::_exit(0);
        }

        push @pids, $pid;
    }

    my @lists = ([2, 3, 4], [4], [4, 5], [2, 5, 6], [2, 3, 4, 5, 6], [3, 6]);
    my $changed = 0;

    $changed += !!become(at(@$_)) for @lists, @lists;

    is($changed, 2 * @lists, 'nginx saw all changes');

    $t->step('enough');
    waitpid $_, 0 for @pids;

    like(Kvroute::slurp("$t->{dir}/load.$_"), qr/^200:\d+$/,
         "load $_: all were served") for 1 .. 3;

    ok($t->idle(), 'no request is left in the counters');
    is(($t->load())[2], 0, 'nginx counts none either');
}

# a reload keeps the state by address

{
    my $at = served();
    $t->reload();
    wait_for(sub { servers() eq '127.0.0.3 127.0.0.6' });
    is(served(), $at, 'affinity survives a reload');
}

# between two tries the list becomes longer than ever, and another reader, here
# the status, sees it first

{
    my @more = at(2 .. 41);

    records(at(2, 3));
    wait_for(sub { servers('many') eq '127.0.0.2 127.0.0.3' });

    my ($worker) = $t->workers();
    my $s = $t->start('POST /many/', $body, headers => { 'X-M' => 'lose many' });
    wait_for(sub { $t->backend_log('M') });

    records(@more);
    ok(wait_for(sub { servers('many') eq join ' ', sort @more }),
       'the list is longer than ever');

    $t->step('many');
    $t->finish($s);

    is($t->post('/many/', $body)->{status}, 200, 'served by a long list');
    is(($t->workers())[0], $worker, 'by the same worker');
}

# data-parallel ranks are added and removed with their servers

{
    my $many = $t->{vars}{MANY};
    my $ranked = sub { return @{$t->status()->{upstreams}{ranked}{peers}} };

    # each of its ranks has a slot of its own

    my $become = sub {
        my @addrs = @_;

        Kvroute::Dns::records($t, 'ranked', @addrs);

        return wait_for(sub {
            my @rows = $ranked->();
            my %id = map { $_->{id} => 1 } grep { defined $_->{id} } @rows;

            return keys %id == @rows
                   && join(' ', sort map { $_->{name} } @rows)
                      eq join ' ', sort map { my $a = $_; map { "$a:$many#$_" } 0 .. 3 } @addrs;
        });
    };

    my $ask = sub {
        my ($pin, $data) = @_;

        return $t->answered_by($t->post('/ranked/', $data || $body,
                                        headers => $pin ? { 'X-Pin' => $pin } : {}));
    };

    ok($become->(at(2, 3)), 'ranks: of two servers');
    is(join(' ', map { $ask->("127.0.0.3:$many#$_") } 0 .. 3), 'M 0 M 1 M 2 M 3',
       'ranks: each gets its rank');

    my %id = map { $_->{name} => $_->{id} } $ranked->();
    my $s = $t->start('POST /ranked/?held', chat(text(20_000, 7)), headers =>
                      { 'X-Pin' => "127.0.0.2:$many#3", 'X-M' => 'wait ranks' });

    ok(wait_for(sub { grep { /held/ } $t->backend_log('M') }),
       'ranks: a request is at a rank');
    ok($become->('127.0.0.3'), 'ranks: its server is removed');
    like($ask->(), qr/^M [0-3]$/, 'ranks: others are served by the other one');
    $t->step('ranks');
    is($t->answered_by($t->finish($s)), 'M 3', 'ranks: it ends');
    ok($t->idle(), 'ranks: no request is left in the counters');

    ok($become->(at(2, 3)), 'ranks: the server returns');
    is_deeply({ map { $_->{name} => $_->{id} } $ranked->() }, \%id,
              'ranks: with its slots');
    is($ask->(undef, chat(text(20_000, 7))), 'M 3', 'ranks: with its cached prompts');

    # more servers than slots, one pair after another

    my $changed = 0;
    my %failed;

    for my $i (2 .. 4) {
        $changed += !!$become->(at(2 * $i, 2 * $i + 1));
        $_ =~ /^M [0-3]$/ or $failed{$_}++ for map { $ask->(undef, chat(text(3000, 90 + $_))) } 1 .. 8;
    }

    is($changed, 3, 'ranks: three pairs of servers, each rank with a slot');
    is_deeply(\%failed, {}, 'ranks: each is named');
    ok($t->idle(), 'ranks: no request is left in the counters');
}

$t->done();
