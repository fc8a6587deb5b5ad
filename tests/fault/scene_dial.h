/* scene_dial.h: a client of the library and what it says, for scenes whose server differs. */
#ifndef TESTS_FAULT_SCENE_DIAL_H
#define TESTS_FAULT_SCENE_DIAL_H

#include "scene.h"

struct talk {
    char url[200];
    struct stand *stand;
    tws_dial_options opt;
};

/* scheme: ws or wss; the host is localhost. */
void talk_options(struct talk *t, struct stand *s, const char *scheme);
/* Takes a struct talk; notes what fails. */
void dial_and_talk(void *arg);

#endif
