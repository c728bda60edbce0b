#!/usr/bin/perl

# The house: the folders ("rooms") of the sources, and the rules between them.
#
#     t/house.t                checks the rules, and that a violation of each is
#                              found
#     t/house.t report FILE    prints the rooms as a table, writes JSON to FILE
#
# The rules (t/lib/Kvroute/House.pm):
#
#     upward    a file includes and uses only its own room and lower floors
#     module    the router includes and uses nothing of an extension, and no
#               extension includes or uses another one
#     face      a file includes only the faces of other rooms
#     include   an include names its room
#     circle    calls between files form no circle, and includes of headers
#               neither
#     header    an exported name of kvr_a_b.c is declared in kvr_a_b.h or
#               kvr_a.h, or in a face or the *_int.h of its room; each prototype
#               has a function
#     name      an exported name begins with the name of its file or of such a
#               header, with the last words of that name (kvr_line_ in
#               kvr_index_line.h), or with a prefix in the table
#     basename  nginx puts the objects of folders of one name into one folder
#     nginx, libc, static     core uses no ngx_ name, allocates nothing, reads no
#               clock, logs nothing, opens nothing, and has no variable
#     lines     at most 700 lines a file
#     room      4 to 14 files a room, each file in one room; faces exist
#     sequence  only core/route inserts and undoes predictions
#
# The table has a row for each room: its floor, the room, its faces (headers
# that other rooms may include) | further prefixes of exported names | flags:
#
#     core    the rules for core
#     root    includes name the room
#     inner   may include other headers than faces: it measures single functions
#     any     the room may have any number of files

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Kvroute::House;

my $table = <<'END';
[ngx_http_kvroute_module]
 0 core/base      kvr_core.h kvr_chain.h kvr_fifo.h kvr_pages.h kvr_set.h kvr_reason.h kvr_fault.h | kvr_ | core root
 1 core/hash      kvr_block.h kvr_block_vec.h kvr_vec.h || core root
 1 core/index     kvr_index.h kvr_index_line.h kvr_index_snapshot.h | kvr_index_  | core root
 1 core/policy    kvr_policy.h  | kvr_policy_ | core root any
 1 core/learn     kvr_feedback.h kvr_retention.h kvr_prefill.h kvr_ratio.h kvr_resume.h kvr_tier.h kvr_ttft.h kvr_whatif.h || core root
 1 core/queue     kvr_queue.h   | kvr_queue_  | core root
 2 core/text      kvr_json.h kvr_json_push.h kvr_text.h kvr_window.h || core root
 3 core/prompt    kvr_prompt.h kvr_canon.h kvr_endpoint.h | kvr_prompt_ | core root
 2 core/hot   kvr_hot.h kvr_sketch.h || core root
 1 core/health    kvr_outlier.h kvr_trial.h kvr_drain.h || core root
 3 core/engine    kvr_engine.h kvr_dialect.h kvr_framing.h | kvr_engine_ | core root
 4 core/response  kvr_response.h kvr_reply.h || core root
 4 core/state     kvr_zone.h kvr_counter.h kvr_hooks.h kvr_zone_snapshot.h kvr_snapshot.h || core root any
 5 core/watch     kvr_history.h kvr_since.h kvr_verdict.h || core root
 7 core/route     kvr_route.h   | kvr_route_  | core root
 8 .              ngx_http_kvroute.h ngx_http_kvroute_compat.h ngx_http_kvroute_extension.h ngx_http_kvroute_extension.c | ngx_http_kvroute_ | root
 9 zone           ngx_http_kvroute_zone.h    | ngx_http_kvroute_zone_    | root
 9 request        ngx_http_kvroute_request.h | ngx_http_kvroute_request_ | root
10 conf           ngx_http_kvroute_conf.h ngx_http_kvroute_conf_param.h | ngx_http_kvroute_conf_    | root any
10 engine         ngx_http_kvroute_engine.h ngx_http_kvroute_fetch.h ngx_http_kvroute_conn.h | ngx_http_kvroute_engine_  | root
10 status         ngx_http_kvroute_status.h  | ngx_http_kvroute_status_  | root
12 queue          ngx_http_kvroute_queue.h   | ngx_http_kvroute_queue_   | root
13 balance        ngx_http_kvroute_balance.h | ngx_http_kvroute_balance_ | root
15 .              ngx_http_kvroute_module.c ngx_http_kvroute_filter_module.c || root

[ngx_http_kvroute_share_module]
 5 core/share     kvr_share.h   | kvr_share_  | core root
11 share          ngx_http_kvroute_share.h   | ngx_http_kvroute_share_   | root

[ngx_http_kvroute_events_module]
 3 core/events    kvr_events.h kvr_zmtp.h | kvr_events_ | core root
 6 core/alias     kvr_alias.h kvr_attribute.h || core root
 8 core/sync      kvr_sync.h    || core root any
11 events         ngx_http_kvroute_events.h  | ngx_http_kvroute_events_  | root

[ngx_http_kvroute_prefill_module]
 4 core/legs      kvr_edit.h kvr_transfer.h kvr_connector.h kvr_disaggregate.h kvr_pull.h || core root
14 legs           ngx_http_kvroute_legs.h    | ngx_http_kvroute_legs_    | root

[ngx_http_kvroute_continue_module]
 8 core/continue  kvr_again.h kvr_answer.h kvr_continue.h kvr_late.h kvr_splice.h || core root
14 continue       ngx_http_kvroute_continue.h | ngx_http_kvroute_continue_ | root

[ngx_http_kvroute_budget_module]
 6 core/budget    kvr_budget.h  || core root any
14 budget         ngx_http_kvroute_budget.h | ngx_http_kvroute_budget_ | root

[t/engine]
 0 model     replica.h blocks.h hardware.h | kve_
 1 base      * | kve_ | root
 2 body      * | kve_ | root
 3 reply     * | kve_ | root
 4 metrics   * | kve_ | root
 4 events    * | kve_ | root
 5 job       * | kve_ | root
 6 .         * | kve_ | root

[bench]
16 common         * | bench_
17 wire           * || any
17 wire/control   * || any
17 micro          * | micro_ | inner
16 model          * | kvs_
17 queue          * | kvq_
17 hosts          * || any
18 sim/engine     * | kvs_
19 sim/router     * | kvs_
20 sim/contest    * | kvs_
21 sim/report     * | kvs_
22 sim/legs       * | kvs_
23 sim            * | kvs_   | any
END

# only core/route may call these

my @sequence = qw(kvr_index_insert kvr_index_refresh kvr_index_undo);

my $root = abs_path("$FindBin::Bin/..");
my $core = 'ngx_http_kvroute_module/core';
my $objs = ($ENV{BUILD} || "$root/build") . '/nginx/addon';

my $rooms = Kvroute::House::rooms($table);
my @modules = map { s/.*\///r } glob "$root/ngx_http_kvroute*_module";
my $files = Kvroute::House::sources($root, @modules, 't/engine', 'bench');

# the build makes this file from the page

my $status = 'ngx_http_kvroute_module/status';

$files->{"$status/ngx_http_kvroute_status_page.c"} =
    `sh $root/$status/embed /dev/null`;

my $objects = Kvroute::House::objects($objs, $files);

sub check {
    my ($files, $objects, $rooms) = @_;

    return Kvroute::House::check(rooms => $rooms, files => $files, objects => $objects,
                                 home => "$core/route", sequence => \@sequence);
}


my $house = check($files, $objects, $rooms);

if (@ARGV == 2 && $ARGV[0] eq 'report') {
    Kvroute::House::report($house, $ARGV[1]);
    exit;
}

ok(%$objects, 'the module is built');
ok(!@{$house->{found}}, 'the sources follow all rules')
    or diag(map { "$_->[0]: $_->[1]: $_->[2]\n" } @{$house->{found}});


# Breaks each rule in a copy of the sources, or of the symbols of their objects,
# and expects that it is found.

my @module = grep { $_->{tree} =~ /^ngx_http_kvroute/ } @$rooms;

delete @$files{grep { !/^ngx_http_kvroute/ } keys %$files};

sub broken {
    my ($rule, $what, $change, $object) = @_;

    my $h = check({ %$files, %{$change // {}} }, { %$objects, %{$object // {}} }, \@module);

    ok(scalar(grep { $_->[0] eq $rule } @{$h->{found}}), "$rule: $what");
}


# a file with a line before its text, or with more text after it

sub prepend { return ($_[0] => "$_[1]\n" . ($files->{$_[0]} // die "no $_[0]")) }
sub append { return ($_[0] => ($files->{$_[0]} // die "no $_[0]") . "\n\n$_[1]") }

# an object with one more name in its defs, uses or data

sub object {
    my ($path, $of, $name) = @_;
    my $o = $objects->{$path} // die "no object of $path";

    return { $path => { %$o, $of => { %{$o->{$of}}, $name => 1 } } };
}


my $load = "$core/state/kvr_load";
my $base = "$core/base/kvr_core.h";

broken('upward', 'core/base includes core/state',
       { prepend($base, '#include "core/state/kvr_load.h"') });

broken('upward', 'core calls the glue without an include', {},
       object("$load.c", uses => (sort grep { $house->{defined}{$_} =~ m{/zone/} }
                                  keys %{$house->{defined}})[0]));

broken('module', 'the router includes an extension',
       { prepend('ngx_http_kvroute_module/balance/ngx_http_kvroute_upstream.c',
                 '#include "share/ngx_http_kvroute_share.h"') });

broken('module', 'the router calls an extension', {},
       object('ngx_http_kvroute_module/balance/ngx_http_kvroute_upstream.c',
              uses => (sort grep { $house->{defined}{$_} =~ /^ngx_http_kvroute_share/ }
                       keys %{$house->{defined}})[0]));

broken('face', 'core/state includes a private header of core/index',
       { prepend("$load.c", '#include "core/index/kvr_index_batch.h"') });

broken('include', 'an include that does not name its room',
       { prepend("$load.c", '#include "kvr_load.h"') });

my ($from) = sort grep { m{^$core/} } keys %{$house->{calls}};
my ($to) = sort keys %{$house->{calls}{$from}};

my ($name) = sort keys %{$objects->{$from}{defs}};

broken('circle', "$to calls $from", { append($to, "static void  *f = $name;\n") },
       object($to, uses => $name));

broken('circle', 'two headers that include one another',
       { prepend($base, '#include "core/base/kvr_chain.h"'),
         prepend("$core/base/kvr_chain.h", '#include "core/base/kvr_core.h"') });

my ($moved) = sort keys %{$objects->{"$load.c"}{defs}};

broken('header', 'a function in the wrong file', {},
       { "$load.c" => { %{$objects->{"$load.c"}}, defs => {} },
         %{object("$core/state/kvr_registry.c", defs => $moved)} });

broken('header', 'a function that no header declares', {},
       object("$load.c", defs => 'kvr_load_more'));

broken('header', 'a prototype without a function',
       { append("$load.h", "int kvr_load_more(void);\n") });

broken('name', 'a function with the name of another room', {},
       object("$load.c", defs => 'kvr_ring_load'));

broken('basename', 'two files with the same name',
       { 'ngx_http_kvroute_module/zone/kvr_load.c' => "\n" });

broken('nginx', 'a name of nginx in core', { append("$load.c", "static ngx_int_t  n;\n") });

broken('libc', "$_() in core", {}, object("$load.c", uses => $_))
    for qw(malloc time __printf_chk);

broken('static', 'a variable in core', {}, object("$load.c", data => 'n.0'));

broken('lines', 'a file of more than 700 lines', { append("$load.c", "\n" x 700) });

broken('room', 'a room with too many files',
       { map { ("$core/base/kvr_$_.h" => "\n") } 'a' .. 'n' });

broken('room', 'a file in no room', { "$core/kvr_load2.c" => "\n" });

broken('sequence', 'core/queue inserts a prediction',
       { append("$core/queue/kvr_queue.c", "static void  *f = $sequence[0];\n") });

done_testing();
