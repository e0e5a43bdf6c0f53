from gopt.host.extras import check_installed, optional

for _name in ("tyro", "rich"):
    check_installed(optional(_name, "cli", "experiments"))
