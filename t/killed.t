#!/usr/bin/perl

# Workers killed at the worst instants: inside nginx's lock of the servers, or
# between counters (t/die.c sets the trap).  Requests that do not need the lock
# continue at once; others too, if the owner of the lock is known.

use File::Basename qw(dirname);
use lib 't/lib';
use Kvroute;

my $workers = $ENV{KVROUTE_WORKERS} || 2;
my $t = Kvroute->new(workers => $workers > 1 ? $workers : 2);

my $trap = dirname($t->{engine}) . '/die.so';

plan(skip_all => "no $trap: make engine") unless -e $trap;

$t->backend("B$_") for 0 .. 1;

$t->upstream('u', 'B0 B1 max_fails=0');
$t->upstream('backed', 'server 127.0.0.1:1 down;', 'B0 B1 backup max_fails=0');
$t->upstream('other', 'B0 B1 max_fails=0');
$t->upstream('apart', 'kvroute kv_cache zone=y;', 'B0 B1 max_fails=0');
$t->upstream('queued', 'B0 max_fails=0 max_conns=100', 'B1 down',
             'kvroute_queue max=10;');

$t->conf(<<'EOF');
    kvroute_zone zone=z:2m;
    kvroute_zone zone=y:2m;

    client_body_buffer_size 1m;

    location / { proxy_pass http://u; }
    location /static { return 200 static; }
EOF

{
    local $ENV{LD_PRELOAD} = $trap;
    local $ENV{KVROUTE_DIE} = "$t->{dir}/die";
    local $ENV{ASAN_OPTIONS} = join ':', grep { $_ }
        $ENV{ASAN_OPTIONS}, 'verify_asan_link_order=0';

    $t->run();
}

$t->expect_log(qr/worker process \d+ exited on signal/);

my $body = chat(text(20_000, 1));

sub alive { return wait_for(sub { $t->active_workers() == $t->{workers} }) }


# a worker dies at a function that the request reaches

sub die_at {
    my ($function, $do) = @_;

    alive();
    my @old = $t->active_workers();
    my $gone;

    Kvroute::write_file("$t->{dir}/die.new", "$function\n");
    rename "$t->{dir}/die.new", "$t->{dir}/die";

    for (1 .. 200) {
        my $status = $do->()->{status};

        # the client sees it slightly before it has ended

        wait_for(sub {
            my %left = map { $_ => 1 } $t->workers();
            ($gone) = grep { !$left{$_} } @old;
        }, $status ? 0.001 : 10);

        last if $gone;
    }

    ok($gone, "a worker was killed at $function");
}


# requests to all workers are answered

sub served {
    my ($what, @uris) = @_;

    for my $uri (@uris) {
        my $n = 0;

        for (1 .. 4 * $t->{workers}) {
            my $r = $uri eq '/static' ? $t->get($uri) : $t->post($uri, $body);
            $r->{status} == 200 or last;
            $n++;
        }

        is($n, 4 * $t->{workers}, "$what: $uri") or die "cannot continue\n";
    }
}


sub counted {
    my ($what) = @_;

    ok($t->idle(), "$what: the counters are back at zero");
    is(($t->load())[2], 0, "$what: nginx counts none either");
}


my @all = qw(/static /other/ /apart/ / /backed/);

served('all workers live', @all);

# inside the lock, held for writing or reading; in the list of backups

my %let;

for my $case ([ 'u', 'write', sub { $t->post('/', $body) } ],
              [ 'u', 'read', sub { $t->get('/') } ],
              [ 'backed', 'write', sub { $t->post('/backed/', $body) } ],
              [ 'apart', 'write', sub { $t->post('/apart/', $body) } ],
              [ 'apart', 'read', sub { $t->get('/apart/') } ])
{
    my ($upstream, $how, $do) = @$case;

    die_at('ngx_http_kvroute_reserve_consume', $do);
    ok(alive(), 'a new worker has started');
    served("killed in $upstream to $how", @all);
    counted("killed in $upstream to $how");

    my @let = $t->log() =~ /(servers of upstream "$upstream" was released)/g;
    is(@let, ++$let{$upstream}, 'the log reports it');
}

# between two counters: the prediction of a request is undone when it is no
# longer counted

die_at('kvr_index_undo', sub {
    $t->post('/', chat(text(20_000, rand 1e9)), headers => {
        map { $_ => 'status 500' } qw(X-B0 X-B1) });
});
counted('killed at the end of a request');

# with a reservation of the queue that nginx has not counted, while others
# continue

{
    my @s = map { $t->start('POST /queued/', $body,
                            headers => { 'X-B0' => 'wait go' })
            } 1 .. 8 * $t->{workers};

    wait_for(sub { ($t->load())[0] == @s });

    die_at('ngx_http_kvroute_match', sub { $t->post('/queued/', $body) });

    my @left = grep { !IO::Select->new($_)->can_read(0) } @s;

    ok(wait_for(sub { ($t->load())[0] == @left }), @left . ' requests continue');
    is(($t->load())[2], scalar @left, 'and nginx counts as many');

    $t->step('go');
    is($t->finish($_)->{status}, 200, 'served') for @left;
    counted('killed with a reservation');
}

# the lock without a record: its owner is unknown; since 1.27.3 nginx's own
# start waits for it, and its functions read what a writer held before

{
    # a timer can be what reaches it, so a request may hang already

    my @hang;

    die_at('ngx_rwlock_unlock', sub {
        push @hang, $t->start('POST /', $body);
        return {};
    });

    if ($t->version() lt '001027003') {
        ok(alive(), 'a new worker has started');
        is($t->status()->{upstreams}{u}{locked}, JSON::PP::true,
           'the status works without those servers');
    }

    served('killed without a record', qw(/static /other/ /apart/));

    is($t->status()->{upstreams}{other}{locked}, JSON::PP::false,
       'the status has all the others');

    ok(wait_for(sub {
        $t->log() =~ /lock of the servers of upstream "u" is held/;
    }), 'the log has the remedy');

    # requests to these servers hang; the log's remedy helps

    push @hang, $t->start('POST /', $body);

    my @old = $t->workers();

    wait_for(sub { grep { busy($_) } @old });
    kill 'HUP', $t->{master};

    wait_for(sub {
        my %old = map { $_ => 1 } @old;
        my @new = grep { !$old{$_} } $t->active_workers();
        return @new == $t->{workers};
    });

    $t->kill_worker($_) for grep { -d "/proc/$_" } @old;
    served('reloaded, and the old ones killed', @all);
    counted('reloaded');
    close $_ for @hang;
}


# whether a process runs, and waits for nothing

sub busy { return Kvroute::slurp("/proc/$_[0]/stat") =~ /^\d+ \(.*\) R/ }

$t->done();
