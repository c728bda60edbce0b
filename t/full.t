#!/usr/bin/perl

# A zone with the maximum number of servers, and more: servers without a slot
# are chosen by load, and get one when another server is removed.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

# one server that has all addresses, and two more

my $everywhere = $t->backend('M', addr => '0.0.0.0');

$t->backend($_) for qw(B0 B1 W);

my ($b0, $b1) = map { "127.0.0.1:$t->{vars}{$_}" } qw(B0 B1);

sub address { return join '.', 127, 1, 1 + int($_[0] / 250), 1 + $_[0] % 250 }

# so many servers beside the two, which may have ranks

sub conf {
    my ($n, $ranks) = @_;

    $t->{vars}{MANY} = join "\n        ",
        map { 'server ' . address($_) . ":$everywhere max_fails=0;" } 0 .. $n - 1;
    $t->{vars}{RANKS} = $ranks ? "kvroute_ranks $ranks;" : '';

    $t->upstream('late', '%%RANKS%%', 'B0 B1 max_fails=0');

    $t->conf(<<'EOC');
    kvroute_zone zone=z:16m max_peers=512;
    kvroute_zone zone=few:1m max_peers=2;
    log_format r '$uri $status $kvroute_peer $kvroute_reason';
    access_log %%DIR%%/access.log r;

    upstream many {
        zone many 2m;
        kvroute kv_cache zone=z;
        %%MANY%%
    }

    upstream placed {
        zone placed 64k;
        kvroute kv_cache zone=few;
        kvroute_queue max=10;
        server 127.0.0.1:%%B0%% max_fails=0;
        server 127.0.0.1:%%B1%% max_fails=0;
    }
    upstream waits {
        zone waits 64k;
        kvroute kv_cache zone=few;
        kvroute_queue max=10;
        server 127.0.0.1:%%W%% max_fails=0 max_conns=1;
    }

    proxy_set_header X-Data-Parallel-Rank $kvroute_rank;

    kvroute_pin $http_x_pin;
    location /placed/ { proxy_pass http://placed; }
    location /waits/ { proxy_pass http://waits; }
    location /many/ { proxy_pass http://many; }
    location /late/ { proxy_pass http://late; }
EOC
}

my $n = 0;

sub ask {
    my ($where, $body, %headers) = @_;

    return $t->post("/$where/v1/chat/completions", $body // chat(text(3000, ++$n)),
                    headers => \%headers);
}

sub late { return ask('late', @_)->{headers}{'x-backend'} // '' }

sub rows { return @{$t->status()->{upstreams}{$_[0]}{peers}} }

sub ids { return grep { defined } map { $_->{id} } map { rows($_) } @_ }

# so many at once: what each was told, and how often

sub at_once {
    my ($many, $file) = @_;

    my @s = map {
        $t->start('POST /late/v1/chat/completions', chat(text(3000, ++$n)),
                  headers => { map { ("X-B$_" => "wait $file") } 0, 1 })
    } 1 .. $many;

    ok(wait_for(sub { ($t->load())[2] == $many }), "$file: $many at once");
    $t->step($file);

    my %got;
    $got{$t->answered_by($t->finish($_))}++ for @s;
    return %got;
}

# Each worker sees for itself, and any of them may answer.  Of hundreds of rows
# the few that matter are found without reading all as JSON.

sub everywhere {
    my ($many) = @_;

    return wait_for(sub {
        return !grep {
            late();
            my ($rows) = $t->get('/kvroute/json')->{body} =~ /"late":\s*\{.*?"peers":\s*\[(.*?\}\s*\])/s;

            $many != (() = ($rows // '') =~ /"id":\s*\d/g);
        } 1 .. 8 * $t->{workers};
    });
}

sub warned {
    my ($what, $of) = @_;

    return $t->log() =~ /"z" has no slot for $what of upstream "$of", which are chosen by load only: all slots are in use \(max_peers/;
}


# --- the 513th

conf(511);
$t->run();

my %id;
$id{$_}++ for ids('many', 'late');

is(scalar keys %id, 512, 'of 513 servers 512 have a number');
is(scalar(grep { $_ > 1 } values %id), 0, 'none has that of another');
is($t->status()->{zones}{z}{peers}, 512, 'the zone is full');
ok(warned('1 servers', 'late'), 'who has none is said, and what helps');
is(scalar(rows('late')), 2, 'it has a row all the same');
is_deeply([map { $_->{id} ? 1 : 0 } rows('late')], [1, 0], 'without a number');

my %got = at_once(16, 'few');
cmp_ok($got{"$_ none"} // 0, '>=', 2, "by load $_ gets its share") for qw(B0 B1);

# of the last ones by number as well what they hold is known

my $gone = address(510) . ":$everywhere";
my ($last) = sort { $b->{id} <=> $a->{id} } grep { $_->{name} ne $gone } rows('many');
my $prompt = chat(text(9000, 4711));

cmp_ok($last->{id}, '>=', 509, 'one of the highest numbers');
ask('many', $prompt, 'X-Pin' => $last->{name});
is(ask('many', $prompt)->{status}, 200, 'a prompt comes again');

my $again = qr{^/many/\S+ 200 \Q$last->{name}\E affinity$}m;

ok(wait_for(sub { $t->access_log() =~ $again }), 'to the server with that number');
ok($t->idle(), 'nothing is counted');


# --- an upstream without a slot in the zone is not counted as another one

is(ask('placed')->{status}, 200, 'the first upstream of a zone');

my @waits = map {
    $t->start('POST /waits/v1/chat/completions', chat(text(3000, ++$n)),
              headers => { 'X-W' => 'wait waits' })
} 1 .. 2;

ok(wait_for(sub { ($t->status()->{upstreams}{waits}{queue}{size} // 0) == 1 }),
   'one request waits');
$t->step('waits');
is($t->finish($_)->{status}, 200, 'and is served') for @waits;
is($t->status()->{upstreams}{placed}{queue_time}{count}, 0,
   'no request has waited at the first upstream');


# --- one is gone: its number is for who waits for one

conf(510);
$t->reload();

ok(everywhere(2), 'a number that is free is given');
is($t->status()->{zones}{z}{peers}, 512, 'the zone is full again');

my $b1_knows = chat(text(9000, 4712));

late($b1_knows, 'X-Pin' => $b1);
is(late($b1_knows), 'B1', 'and what it holds is known from then on') for 1 .. 3;

is(ask('many', $prompt)->{status}, 200, 'the prompt from before the reload');

ok(wait_for(sub { 2 == (() = $t->access_log() =~ /$again/g) }), 'is where it was');


# --- ranks for which there is no number

conf(510, 4);
$t->reload();

is_deeply([sort grep { /^127/ } map { $_->{name} } grep { defined $_->{id} } rows('late')],
          [sort "$b0#0", "$b1#0"], 'both servers keep theirs, their ranks have none');
is(scalar(rows('late')), 8, 'each has a row');
ok(warned('6 servers or ranks', 'late'), 'which is said');

# what has no number is still used: the engine is told no rank, and chooses

%got = at_once(16, 'none');
cmp_ok($got{"$_ none"} // 0, '>=', 4, "ranks of $_ that have none get their share")
    for qw(B0 B1);
is(late($b1_knows), 'B1', 'and it keeps what it holds');

# of one server's ranks all have numbers by now, of the other's the first one

conf(507, 4);
$t->reload();

ok(everywhere(5), 'numbers for half of the ranks');

%got = at_once(20, 'half');
is(scalar(grep { /^(?:B0 [0-3]|B1 0|B1 none)$/ } keys %got), scalar keys %got,
   'no rank without a number is named');
is(scalar(grep { $got{"B0 $_"} } 1 .. 3), 3, 'those that have one are');
cmp_ok($got{'B1 none'} // 0, '>=', 2, 'which gets its share');
ok($t->idle(), 'nothing is counted');

conf(504, 4);
$t->reload();

ok(everywhere(8), 'with numbers for all ranks all have one');

%got = at_once(24, 'ranks');
is(scalar(grep { /^B[01] [0-3]$/ } keys %got), 8, 'and each is told apart');
ok($t->idle(), 'nothing is counted');

$t->done();
