#!/usr/bin/perl

# A reload turns ranks on and off, or changes their number, with open and new
# requests; two upstreams of one zone have ranks of the same servers.

use lib 't/lib';
use Kvroute;
use POSIX ();

my $t = Kvroute->new();

$t->backend($_) for qw(B0 B1);

my @names = map { "127.0.0.1:$t->{vars}{$_}" } qw(B0 B1);

# number of ranks of each server, 0: off

sub conf {
    my ($ranks, $others) = @_;

    $t->{vars}{RANKS} = $ranks ? "kvroute_ranks $ranks;" : '';
    $t->{vars}{OTHERS} = $others ? "kvroute_ranks $others;" : '';

    $t->upstream('u', '%%RANKS%%', 'B0 B1 max_fails=0');
    $t->upstream('one', 'kvroute kv_cache zone=both;', 'kvroute_ranks 4;',
                 'B0 B1 max_fails=0');
    $t->upstream('other', 'kvroute kv_cache zone=both;', '%%OTHERS%%',
                 'B0 B1 max_fails=0');

    $t->conf(<<'EOC');
    kvroute_zone zone=z:4m;
    kvroute_zone zone=both:4m;
    log_format r '$uri $status $kvroute_peer $kvroute_rank $kvroute_reason';
    access_log %%DIR%%/access.log r;

    proxy_set_header X-Data-Parallel-Rank $kvroute_rank;

    kvroute_pin $http_x_pin;
EOC
}

my $n = 0;

sub ask {
    my ($where, $body, %headers) = @_;

    return $t->answered_by($t->post("/$where/v1/chat/completions",
                                    $body // chat(text(3000, ++$n)),
                                    headers => \%headers));
}

# a request that stays at a server until a signal

sub hold {
    my ($where, $pin, $file) = @_;

    my $s = $t->start("POST /$where/v1/chat/completions?$file", chat(text(3000, ++$n)),
                      headers => { 'X-Pin' => $pin,
                                   map { ("X-B$_" => "wait $file") } 0, 1 });

    ok(wait_for(sub { grep { /\?$file$/ } map { $t->backend_log($_) } qw(B0 B1) }),
       "$file: a request is there");

    return $s;
}

sub rows { return @{$t->status()->{upstreams}{$_[0]}{peers}} }

# the expected rows, by name

sub named {
    my ($ranks) = @_;

    return sort map {
        my $name = $_;
        $ranks ? map { "$name#$_" } 0 .. $ranks - 1 : $name;
    } @names;
}

conf(0, 4);
$t->run();

# --- under load, from none to some, to other numbers, and back

my @pids;

for my $k (1 .. 2) {
    my $pid = fork() // die "fork: $!";

    if ($pid == 0) {
        my %status;

        until (-e "$t->{dir}/enough") {
            my $r = $t->post('/u/v1/chat/completions',
                             chat(text(4000, 1000 * $k + int rand 20)));
            $status{$r->{status}}++;
        }

        Kvroute::write_file("$t->{dir}/load.$k",
                            join ' ', map { "$_:$status{$_}" } keys %status);
        POSIX::_exit(0);
    }

    push @pids, $pid;
}

my ($before, $held) = (0, 0);

for my $ranks (4, 8, 2, 0, 4, 0) {
    my $what = ($before || 'no') . ' ranks, then ' . ($ranks || 'none');

    # a request is at the last rank, and stays there

    my $file = 'held' . ++$held;
    my $s = hold('u', $before ? "$names[0]#" . ($before - 1) : $names[0], $file);

    conf($ranks, 4);
    $t->reload();

    is_deeply([sort map { $_->{name} } rows('u')], [named($ranks)], "$what: rows are right at once");

    my %got;
    $got{ask('u', undef, 'X-Pin' => $_)}++ for named($ranks);
    is_deeply([sort keys %got],
              [sort map { my $b = $_; $ranks ? map { "B$b $_" } 0 .. $ranks - 1 : "B$b none" } 0, 1],
              "$what: each gets its rank");

    # the row of its rank, if there is one, or that of its server

    my $at = $ranks == 0 ? $names[0]
             : $ranks > $before ? "$names[0]#" . ($before ? $before - 1 : 0) : '';

    cmp_ok((grep { $_->{name} eq $at } rows('u'))[0]{active}, '>=', 1,
           "$what: the old request still counts") if $at;

    $t->step($file);

    my $r = $t->finish($s);
    is("$r->{status} " . $t->answered_by($r),
       '200 B0 ' . ($before ? $before - 1 : 'none'), "$what: and ends at its rank");
    close $s;

    $before = $ranks;
}

$t->step('enough');
waitpid $_, 0 for @pids;

like(Kvroute::slurp("$t->{dir}/load.$_"), qr/^200:\d+$/, "load $_: all were served") for 1, 2;
ok($t->idle(), 'nothing is counted or reserved');
is(($t->load())[2], 0, 'nginx counts none either');

# rows of ranks that were counted with other configurations

conf(8, 4);
$t->reload();
is(scalar(grep { $_->{active_all} || $_->{pending_all} || $_->{unanswered_all} } rows('u')), 0,
   'no request is left at any earlier rank');


# --- a worker is killed when its ranks were removed

my $s = hold('u', "$names[1]#7", 'killed');
my @old = $t->workers();

conf(0, 4);
$t->reload();
$t->kill_worker($_) for @old;
close $s;
$t->step('killed');

ok($t->idle(), 'its requests are no longer counted');
conf(8, 4);
$t->reload();
ok($t->idle(), 'at its rank, too');
is(ask('u', undef, 'X-Pin' => "$names[1]#7"), 'B1 7', 'the rank gets requests again');


# --- two upstreams of one zone share the index

my $body = chat(text(9000, 4711));
my $first = ask('one', $body);
my ($b, $rank) = $first =~ /^B(\d) (\d)$/;

is(ask('other', $body), $first, 'two upstreams: a prompt goes to its server') for 1 .. 3;

$s = hold('one', "$names[$b]#$rank", 'two');

ok(wait_for(sub { grep { $_->{name} eq "$names[$b]#$rank"
                         && $_->{active_all} == 1 } rows('other') }),
   'two upstreams: a request in flight at a rank counts for both');
$t->step('two');
is($t->finish($s)->{status}, 200, 'two upstreams: it ends');
close $s;
ok($t->idle(), 'two upstreams: no request is left in the counters');

# with different numbers of ranks, the common ones are the same

conf(0, 8);
$t->reload();

my %id = map { $_->{name} => $_->{id} } rows('one');
my %of = map { $_->{name} => $_->{id} } rows('other');

is(scalar keys %of, 16, 'two upstreams: eight ranks each in one of them');
is_deeply({ map { $_ => $of{$_} } keys %id }, \%id,
          'two upstreams: common ones have one slot');
is(ask($_, $body), $first, "two upstreams: $_ still knows") for qw(one other);

is(ask('other', $body = chat(text(9000, 4712)), 'X-Pin' => "$names[0]#6"), 'B0 6',
   'two upstreams: a rank that only one has');
is(ask('other', $body), 'B0 6', 'two upstreams: has its own cache');
like(ask('one', $body), qr/^B[01] [0-3]$/, 'two upstreams: and is not chosen by the other');
ok($t->idle(), 'two upstreams: no request is left in the counters');

$t->done();
