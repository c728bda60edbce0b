def all_of(args, result):
    pass
