# install and uninstall
