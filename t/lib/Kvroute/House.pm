package Kvroute::House;

# Finds violations of the house's rules.  t/house.t has the rules, and the table
# of rooms.  Includes are read from the sources; exported and used names are read
# from the module's objects.  A call by a pointer counts where the pointer is
# set.

use strict;
use warnings;

use File::Basename qw(basename dirname);
use File::Find;

# functions that core must not call

my $LIBC = join '|', qw(
    malloc calloc realloc free strdup
    time clock clock_gettime gettimeofday
    printf fprintf sprintf snprintf vsnprintf puts fputs perror
    fopen open read write abort exit getenv rand random
);


# A table of rooms as text:
#
#     [folder]                  the following rooms are in this folder
#     FLOOR ROOM  FACE... | PREFIX... | FLAG...
#
# A room is a folder, or "." with some of the files that are in no folder.

sub rooms {
    my ($table) = @_;
    my (@rooms, $tree);

    for (split /\n/, $table) {
        s/#.*//;

        if (/^\s*\[(\S+)\]/) {
            $tree = $1;
            next;
        }

        my ($floor, $name, $rest) = /^\s*(\d+)\s+(\S+)\s*(.*)/ or next;
        my ($faces, $prefix, $flags) = map { [split ' ', $_ // ''] }
                                       (split /\|/, $rest)[0 .. 2];

        push @rooms, {
            floor => $floor, tree => $tree, faces => { map { $_ => 1 } @$faces },
            name => $name eq '.' ? $tree : "$tree/$name",
            loose => $name eq '.', prefix => $prefix,
            flags => { map { $_ => 1 } @$flags },
        };
    }

    return \@rooms;
}


# Returns the text of each source below the folders, by its path.

sub sources {
    my ($root, @folders) = @_;
    my %files;

    find({ no_chdir => 1, wanted => sub {
        return unless /\.(?:c|h|inc)$/ && !/Makefile/ && -f;

        open my $fh, '<', $_ or die "$_: $!";
        local $/;
        $files{substr $_, 1 + length $root} = <$fh>;
    } }, grep { -d } map { "$root/$_" } @folders);

    return \%files;
}


# Returns the objects of the build by the paths of their sources: exported
# names, used names, variables.

sub objects {
    my ($dir, $files) = @_;
    my ($o, %objects);
    my %path = map { (basename($_, '.c') => $_) }
               grep { /^ngx_http_kvroute.*\.c$/ } keys %$files;
    my @made = grep { $path{basename($_, '.o')} } glob "$dir/*/*.o";

    for (@made ? qx(objdump -t @made) : ()) {

        if (/^(\S+)\.o:/) {
            $o = $objects{$path{basename($1)}} = { defs => {}, uses => {}, data => {} };

        } elsif (/\*UND\*\s+\S+\s+(\w+)/) {
            $o->{uses}{$1} = 1;

        } elsif (/^\S+ (.).{5}([FO]) (\S+)\s+\S+\s+(?:\.hidden )?(\S+)$/) {
            my ($bound, $type, $section, $name) = ($1, $2, $3, $4);

            $o->{defs}{$name} = 1 if $bound ne 'l';
            $o->{data}{$name} = 1
                if $type eq 'O' && $section =~ /^\.(?:data|bss)(?!\.rel\.ro)/;
        }
    }

    return \%objects;
}


# Returns the circles of a graph { node => { node => ... } }: its strongly
# connected parts of more than one node (Tarjan).

sub circles {
    my ($graph) = @_;
    my ($n, %order, %low, %on, @stack, @found, $visit) = (0);

    $visit = sub {
        my ($v) = @_;

        $order{$v} = $low{$v} = ++$n;
        $on{$v} = 1;
        push @stack, $v;

        for my $w (sort keys %{$graph->{$v} || {}}) {

            if (!$order{$w}) {
                $visit->($w);
                $low{$v} = $low{$w} if $low{$w} < $low{$v};

            } elsif ($on{$w} && $order{$w} < $low{$v}) {
                $low{$v} = $order{$w};
            }
        }

        return if $low{$v} != $order{$v};

        my @part;

        do {
            push @part, pop @stack;
            delete $on{$part[-1]};
        } while ($part[-1] ne $v);

        push @found, [sort @part] if @part > 1;
    };

    for (sort keys %$graph) {
        $visit->($_) unless $order{$_};
    }

    undef $visit;

    return @found;
}


# Returns the violations: [rule, where, what].  Arguments:
#
#     rooms      the table
#     files      the text of each file by its path
#     objects    what objects() has found
#     home       the only room that may use the functions of the sequence
#     sequence   their names

sub check {
    my $h = { @_, found => [], count => {}, room => {} };

    $_->($h) for \&place, \&includes, \&uses, \&exported, \&core, \&sizes;

    return $h;
}


sub wrong {
    my ($h, @what) = @_;
    push @{$h->{found}}, \@what;
}


# a text without comments and strings

my %bare;

sub bare {
    my ($text) = @_;

    return $bare{$text} //=
        $text =~ s{/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'}{ }gsr;
}


# a file's name without its folder and ending

sub last_of {
    return basename($_[0]) =~ s/\.\w+$//r;
}


sub may {
    my ($from, $to) = @_;
    return $from == $to || $from->{floor} > $to->{floor};
}


# whether the rooms are of the router and an extension, or of two extensions

sub apart {
    my ($from, $to) = @_;

    return $from->{tree} =~ /_module$/ && $to->{tree} =~ /_module$/
           && $to->{tree} ne $from->{tree} && $to->{tree} ne 'ngx_http_kvroute_module';
}


# the room of each file, and the file that defines each name

sub place {
    my ($h) = @_;
    my %at;

    for my $path (sort keys %{$h->{files}}) {
        my ($folder, $file) = (dirname($path), basename($path));

        my ($room) = grep {
            $_->{name} eq $folder
            && (!$_->{loose} || $_->{faces}{$file} || $_->{faces}{'*'})
        } @{$h->{rooms}};

        if (!$room) {
            wrong($h, 'room', $path, 'is in no room of the table');
            next;
        }

        $h->{room}{$path} = $room;
        $h->{count}{$room}++;

        my $was = $at{"$room->{tree} $file"} //= $path;
        wrong($h, 'basename', $path, "is called as $was is") if $was ne $path;
    }

    $h->{paths} = [sort keys %{$h->{room}}];

    for my $path (grep { $h->{room}{$_} } keys %{$h->{objects}}) {
        $h->{defined}{$_} = $path for keys %{$h->{objects}{$path}{defs}};
    }
}


# the file that an include names

sub included {
    my ($h, $path, $name) = @_;
    my %tree = map { $_->{tree} => 1 } @{$h->{rooms}};

    my ($to) = grep { $h->{room}{$_} } map { "$_/$name" } dirname($path), sort keys %tree;
    ($to) = grep { m{/\Q$name\E$} } @{$h->{paths}} unless $to;

    return $to;
}


sub includes {
    my ($h) = @_;
    my %graph;

    for my $path (@{$h->{paths}}) {
        my $room = $h->{room}{$path};

        for my $name ($h->{files}{$path} =~ /^[ \t]*#[ \t]*include[ \t]+"([^"]+)"/mg) {
            my $to = included($h, $path, $name) or next;
            my $other = $h->{room}{$to};

            wrong($h, 'include', $path, "\"$name\" does not name its room")
                if $room->{flags}{root} && $other->{tree} eq $room->{tree}
                   && $to ne "$room->{tree}/$name";

            wrong($h, 'module', $path, "includes $to") if apart($room, $other);

            if (!may($room, $other)) {
                wrong($h, 'upward', $path, "includes $to");

            } elsif ($room != $other && ($to =~ /\.inc$/
                     || !$room->{flags}{inner} && !$other->{faces}{basename($to)}
                        && !$other->{faces}{'*'}))
            {
                wrong($h, 'face', $path, "includes $to, which is not a face");
            }

            $graph{$path}{$to} = 1 if $to !~ /\.inc$/;
        }
    }

    wrong($h, 'circle', $_->[0], "includes of @$_") for circles(\%graph);
}


# which object uses a name that another one defines

sub uses {
    my ($h) = @_;
    my %calls;

    for my $from (grep { $h->{room}{$_} } sort keys %{$h->{objects}}) {
        for my $name (sort keys %{$h->{objects}{$from}{uses}}) {
            my $to = $h->{defined}{$name} or next;
            next if $name =~ /_module$/;

            my @rooms = @{$h->{room}}{$from, $to};

            # a table that a header declares is a register, not a call

            $calls{$from}{$to} = $name if bare($h->{files}{$from}) =~ /\b\Q$name\E\b/;

            wrong($h, 'module', $from, "uses $name of $to") if apart(@rooms);
            wrong($h, 'upward', $from, "uses $name of $to") unless may(@rooms);
        }
    }

    for my $circle (circles(\%calls)) {
        my @text;

        for my $from (@$circle) {
            push @text, map { "$from uses $calls{$from}{$_} of $_" }
                        grep { $calls{$from}{$_} } @$circle;
        }

        wrong($h, 'circle', $circle->[0], join "\n", 'calls', @text);
    }

    $h->{calls} = \%calls;

    for my $name (@{$h->{sequence}}) {
        my $to = $h->{defined}{$name} // '';

        wrong($h, 'sequence', $name, 'is nowhere defined') unless $to;

        wrong($h, 'sequence', $_, "uses $name, which only $h->{home} does")
            for grep { /\.(?:c|inc)$/ && bare($h->{files}{$_}) =~ /\b$name\b/
                       && dirname($_) ne dirname($to)
                       && $h->{room}{$_}{name} ne $h->{home}
                       && !$h->{room}{$_}{flags}{inner} } @{$h->{paths}};
    }
}


# Returns the names in a header, those of its prototypes, and those that a macro
# makes, as kvr_policy_ ## name does for each name of a table.

my %declared;

sub declared {
    my ($text) = @_;

    return $declared{$text} //= do {
        my $all = bare($text);
        my $code = $all =~ s/^[ \t]*#(?:[^\n]*\\\n)*[^\n]*//gmr;
        my %names = map { $_ => 1 } $code =~ /\b([a-z]\w+)/g;

        for my $begin ($all =~ /\b(\w+_) ?## ?\w/g) {
            $names{"$begin$_"} = 1 for $all =~ /\b([a-z]\w+)/g;
        }

        { names => [keys %names],
          prototypes => [$code =~ /^(?!typedef|static|extern)[a-z][\w \*]*?\b(\w+)(?#
                                   )\([^;{}]*\)[^;{}()]*;/mg] };
    };
}


# the exported names, and the headers that declare them

sub exported {
    my ($h) = @_;
    my (%headers, %of);

    push @{$of{dirname($_)}}, $_ for grep { /\.h$/ } @{$h->{paths}};

    for my $header (grep { /\.h$/ && $h->{room}{$_}{tree} =~ /_module$/ }
                    @{$h->{paths}})
    {
        my $says = declared($h->{files}{$header});

        push @{$headers{$_}}, $header for @{$says->{names}};

        wrong($h, 'header', $header, "$_ is nowhere defined")
            for grep { !$h->{defined}{$_} } @{$says->{prototypes}};
    }

    for my $name (sort keys %{$h->{defined} || {}}) {
        next if $name =~ /_module$/;

        my $path = $h->{defined}{$name};
        my ($base, $room) = (last_of($path), $h->{room}{$path});

        # a header whose name begins the file's name is its header, such as
        # kvr_index.h for kvr_index_line.c

        my @own = grep { index($base . '_', last_of($_) . '_') == 0 }
                  @{$of{dirname($path)} || []};

        my ($project, $rest) = $base =~ /^(ngx_http_kvroute|[a-z]+)_?(.*)/;
        my @words = split /_/, $rest;
        my @begins = ($base, map({ last_of($_) } @own),
                      map({ join '_', $project, @words[$_ .. $#words] } 1 .. $#words));
        my $names = join '|', map({ "\Q$_\E" } @{$room->{prefix}}),
                              map({ "\Q$_\E(?![a-zA-Z0-9])" } @begins);

        wrong($h, 'name', $path, "$name begins neither as its file nor as its room")
            unless $name =~ /^(?:$names)/;

        my @in = grep { $h->{room}{$_}{tree} eq $room->{tree} } @{$headers{$name} || []};

        wrong($h, 'header', $path, "$name is in no header of its own")
            unless grep { my $in = $_;
                          $h->{room}{$in} == $room
                          && ($in =~ /_int\.h$/ || $room->{faces}{'*'}
                              || $room->{faces}{basename($in)}
                              || grep { $_ eq $in } @own) } @in;
    }
}


sub core {
    my ($h) = @_;

    for my $path (grep { $h->{room}{$_}{flags}{core} } @{$h->{paths}}) {
        my %ngx = map { $_ => 1 } bare($h->{files}{$path}) =~ /\b(ngx_\w+)/g;
        my $o = $h->{objects}{$path} || {};

        wrong($h, 'nginx', $path, join ' ', sort keys %ngx) if %ngx;

        wrong($h, 'libc', $path, $_)
            for grep { /^_*(?:$LIBC)(?:_chk)?$/ } sort keys %{$o->{uses} || {}};
        wrong($h, 'static', $path, "$_ is not constant") for sort keys %{$o->{data} || {}};
    }
}


sub sizes {
    my ($h) = @_;

    for my $path (grep { !/_test\.c$/ } @{$h->{paths}}) {
        my $n = $h->{files}{$path} =~ tr/\n//;
        wrong($h, 'lines', $path, "$n lines") if $n > 700;
    }

    for my $room (@{$h->{rooms}}) {
        my $n = $h->{count}{$room} // 0;

        for my $face (grep { $_ ne '*' } sort keys %{$room->{faces}}) {
            wrong($h, 'room', $room->{name}, "$face is not there")
                unless $h->{room}{"$room->{name}/$face"};
        }

        wrong($h, 'room', $room->{name}, "has $n files, not 4 to 14")
            if ($n < 4 || $n > 14) && !$room->{loose} && !$room->{flags}{any};
    }
}


# Prints a table of the rooms, and writes the figures as JSON.

sub report {
    my ($h, $json) = @_;
    my (%lines, %broken);
    my %total = (core => 0, glue => 0);

    for my $path (@{$h->{paths}}) {
        my $room = $h->{room}{$path};
        my $n = $h->{files}{$path} =~ tr/\n//;

        $lines{$room} += $n;
        $total{$room->{flags}{core} ? 'core' : 'glue'} += $n
            if $room->{tree} =~ /_module$/;
    }

    my @used = grep { $h->{count}{$_} } @{$h->{rooms}};

    printf "%-5s %-44s %5s %6s\n", qw(floor room files lines);
    printf "%5d %-44s %5d %6d\n", $_->{floor}, $_->{name}, $h->{count}{$_}, $lines{$_}
        for @used;

    print "$_->[0]: $_->[1]: $_->[2]\n" for @{$h->{found}};
    $broken{$_->[0]}++ for @{$h->{found}};

    my $text = sprintf '{"rooms":%d,"files":%d,"lines":{"core":%d,"glue":%d},'
                       . '"upward":%d,"circles":%d,"over_700":%d,'
                       . '"sequence_copies":%d}',
                       scalar @used, scalar @{$h->{paths}}, @total{qw(core glue)},
                       map { $broken{$_} // 0 } qw(upward circle lines sequence);

    print "$text\n";

    open my $fh, '>', $json or die "$json: $!";
    print $fh "$text\n";
    close $fh;
}


1;
